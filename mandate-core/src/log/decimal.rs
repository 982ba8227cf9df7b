//! Sizes and indices as the log's formats write them: ASCII digits without a leading zero.

use super::MAX_TREE_SIZE;

/// The number that `text` spells, at most [`MAX_TREE_SIZE`]. `None`: it is not a number in its one spelling, or too large.
pub(super) fn read(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if !digits || leading_zero {
        return None;
    }
    text.parse().ok().filter(|number| *number <= MAX_TREE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("9223372036854775807"), Some(MAX_TREE_SIZE));
        for text in ["", "00", "01", "+1", "-1", " 1", "1 ", "1\n", "0x1", "1e3", "٣", "9223372036854775808"]
        {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
