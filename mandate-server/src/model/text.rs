//! What free text may not hold.

/// Whether a character changes the order in which text is shown: those with the property `Bidi_Control` (UAX #9).
#[must_use]
pub fn is_bidirectional_control(found: char) -> bool {
    matches!(found, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
