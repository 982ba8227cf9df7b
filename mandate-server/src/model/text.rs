//! Free text that people read: any Unicode, but nothing that changes how it is shown, or that a database cannot store.

use std::ops::RangeInclusive;

/// Whether a character changes the order in which text is shown: those with the property `Bidi_Control` (UAX #9).
#[must_use]
pub fn is_bidirectional_control(found: char) -> bool {
    matches!(found, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks a free text of so many characters.
///
/// # Errors
/// What it must be, or must not hold, to be read behind the name of its field.
pub fn free(text: &str, length: RangeInclusive<usize>) -> Result<(), String> {
    if !length.contains(&text.chars().count()) {
        let (least, most) = length.into_inner();
        let wanted = if least == 0 { format!("at most {most}") } else { format!("{least} to {most}") };
        return Err(format!("must be {wanted} characters long"));
    }
    match refused(text) {
        None => Ok(()),
        Some((place, found, accepted)) => {
            let code = u32::from(found);
            Err(format!("must hold no {accepted}; character {place} is U+{code:04X}"))
        }
    }
}

/// The first character that is not accepted: its place, counted from 1, and what it is one of.
fn refused(text: &str) -> Option<(usize, char, &'static str)> {
    let mut characters = (1..).zip(text.chars()).peekable();
    while let Some((place, found)) = characters.next() {
        let accepted = match found {
            '\n' | '\t' => true,
            '\r' => characters.peek().is_some_and(|(_, next)| *next == '\n'),
            found if is_bidirectional_control(found) => {
                return Some((
                    place,
                    found,
                    "bidirectional controls: they change the order in which text is shown",
                ));
            }
            found => !found.is_control(),
        };
        if !accepted {
            return Some((
                place,
                found,
                "control characters but line feed, carriage return before it, and tab",
            ));
        }
    }
    None
}
