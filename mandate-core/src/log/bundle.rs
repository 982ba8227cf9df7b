//! Entry bundles: 256 entries in one file, each with its length before it as a big-endian number of 16 bits.

use super::tile::TileRefused;

/// The longest entry, in bytes: its length has 16 bits in a bundle.
pub const MAX_ENTRY_BYTES: usize = u16::MAX as usize;

/// The bytes of an entry's length.
const LENGTH_BYTES: usize = 2;

/// Writes an entry behind those that `bundle` has.
///
/// ```
/// use mandate_core::log::{read_bundle, write_entry};
/// let mut bundle = Vec::new();
/// write_entry(&mut bundle, b"a")?;
/// write_entry(&mut bundle, b"")?;
/// assert_eq!(bundle, [0, 1, b'a', 0, 0]);
/// assert_eq!(read_bundle(&bundle, 2)?, [&b"a"[..], b""]);
/// # Ok::<(), mandate_core::log::TileRefused>(())
/// ```
///
/// # Errors
/// [`TileRefused::EntrySize`]: it is longer than [`MAX_ENTRY_BYTES`].
pub fn write_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> Result<(), TileRefused> {
    let length = u16::try_from(entry.len()).map_err(|_| TileRefused::EntrySize { bytes: entry.len() })?;
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    Ok(())
}

/// The entries of a bundle of `width` entries, in order.
///
/// # Errors
/// The bundle ends within an entry, or has bytes behind the last one.
pub fn read_bundle(bundle: &[u8], width: u16) -> Result<Vec<&[u8]>, TileRefused> {
    let (mut entries, mut rest) = (Vec::with_capacity(usize::from(width)), bundle);
    for place in 0..width {
        let cut = TileRefused::EntryCut { place };
        let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or(cut)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, behind) = behind.split_at_checked(length).ok_or(cut)?;
        entries.push(entry);
        rest = behind;
    }
    if rest.is_empty() { Ok(entries) } else { Err(TileRefused::EntriesBehind { width }) }
}
