//! Tiles: the hashes of the tree in files of 256, as `tlog-tiles` of C2SP serves them.
//!
//! Tile `index` at level `level` has the hashes of nodes at height 8 · `level`. A full tile never changes. The last tile of
//! a level is partial, with a width from 1 to 255, unless it is full.

use super::hash::{HASH_BYTES, Hash};
use super::node::{Node, joined};

/// How many hashes a full tile has, and how many entries a full bundle.
pub const TILE_WIDTH: u16 = 256;

/// The size of a full tile in bytes.
pub const TILE_BYTES: usize = 256 * HASH_BYTES;

/// The same as a number among sizes and indices.
const WIDTH: u64 = 256;
/// The height of a tile: 2⁸ hashes.
const TILE_HEIGHT: u8 = 8;
/// The highest level that a path may name.
const MAX_LEVEL: u8 = 63;
/// The longest path that is read, in bytes. The longest of a tree of [`MAX_TREE_SIZE`] is half as long.
const MAX_PATH_BYTES: usize = 80;

/// A tile: of hashes, or the bundle of the entries that the hashes at level 0 are of.
///
/// ```
/// use mandate_core::log::{Tile, TileKind};
/// let tile = Tile::parse("tile/0/x001/x234/067.p/12")?;
/// assert_eq!((tile.kind, tile.index, tile.width), (TileKind::Hashes { level: 0 }, 1_234_067, 12));
/// assert_eq!(tile.path(), "tile/0/x001/x234/067.p/12");
/// assert_eq!(Tile::parse("tile/entries/000")?, Tile { kind: TileKind::Entries, index: 0, width: 256 });
/// # Ok::<(), mandate_core::log::TileRefused>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// What it holds.
    pub kind: TileKind,
    /// The place among the tiles of its kind, from 0.
    pub index: u64,
    /// How many hashes or entries it holds: 256, or fewer if it is partial.
    pub width: u16,
}

/// What a tile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileKind {
    /// Hashes of nodes at height 8 · `level`.
    Hashes {
        /// From 0 to 63. No tree has tiles above level 7.
        level: u8,
    },
    /// Entries, each with its length before it.
    Entries,
}

/// Why a path or the content of a tile is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TileRefused {
    /// The path does not begin with `tile/`, a level or `entries`, and a slash.
    #[error("the path must be `tile/`, a level from 0 to 63 or `entries`, and the number of the tile")]
    Path,
    /// The number is not in groups of three digits, all but the last with an `x` before them.
    #[error("the number of a tile must be written in groups of three digits, as in `x001/x234/067`")]
    Index,
    /// The width is not a number from 1 to 255.
    #[error("the width of a partial tile must be a number from 1 to 255")]
    Width,
    /// The bytes are not those of as many hashes.
    #[error("a tile of {width} hashes must be {expected} bytes; got {found}")]
    Bytes {
        /// How many hashes it should have.
        width: u16,
        /// How many bytes that is.
        expected: usize,
        /// How many bytes there are.
        found: usize,
    },
    /// The bundle ends within an entry.
    #[error("the bundle ends within its entry {place}")]
    EntryCut {
        /// The place of the entry in the bundle, from 0.
        place: u16,
    },
    /// The bundle has more bytes than its entries.
    #[error("the bundle has bytes behind its {width} entries")]
    EntriesBehind {
        /// How many entries it should have.
        width: u16,
    },
    /// An entry is longer than a bundle can hold.
    #[error("an entry must be at most 65535 bytes; got {bytes}")]
    EntrySize {
        /// Its length.
        bytes: usize,
    },
}

impl TileRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Index => "index",
            Self::Width => "width",
            Self::Bytes { .. } => "tile_bytes",
            Self::EntryCut { .. } => "entry_cut",
            Self::EntriesBehind { .. } => "entries_behind",
            Self::EntrySize { .. } => "entry_size",
        }
    }
}

impl Tile {
    /// Reads a path, in its one spelling.
    ///
    /// # Errors
    /// The path, the number or the width is malformed.
    pub fn parse(path: &str) -> Result<Self, TileRefused> {
        let rest = path.strip_prefix("tile/").filter(|_| path.len() <= MAX_PATH_BYTES);
        let (kind, rest) = rest.and_then(|rest| rest.split_once('/')).ok_or(TileRefused::Path)?;
        let kind = match kind {
            "entries" => TileKind::Entries,
            level => TileKind::Hashes { level: small(level, 0, MAX_LEVEL).ok_or(TileRefused::Path)? },
        };
        let (index, width) = match rest.split_once(".p/") {
            Some((index, width)) => (index, u16::from(small(width, 1, u8::MAX).ok_or(TileRefused::Width)?)),
            None => (rest, TILE_WIDTH),
        };
        Ok(Self { kind, index: read_index(index).ok_or(TileRefused::Index)?, width })
    }

    /// The path, relative to the prefix of the log.
    #[must_use]
    pub fn path(self) -> String {
        let kind = match self.kind {
            TileKind::Hashes { level } => level.to_string(),
            TileKind::Entries => "entries".to_owned(),
        };
        let partial = if self.is_full() { String::new() } else { format!(".p/{}", self.width) };
        format!("tile/{kind}/{}{partial}", index_path(self.index))
    }

    /// Whether it has all 256 hashes or entries, and so never changes.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.width >= TILE_WIDTH
    }

    /// The tile that holds this one and all that come behind it until it is full.
    #[must_use]
    pub fn full(self) -> Self {
        Self { width: TILE_WIDTH, ..self }
    }

    /// The tile of a kind and number, as wide as it is in a log of `size` entries. `None`: that log does not have it.
    ///
    /// ```
    /// use mandate_core::log::{Tile, TileKind};
    /// let tile = |level, index| Tile::at(TileKind::Hashes { level }, index, 70_000).map(|tile| tile.width);
    /// assert_eq!([tile(0, 273), tile(1, 1), tile(2, 0)], [Some(112), Some(17), Some(1)]);
    /// assert_eq!([tile(0, 274), tile(3, 0)], [None, None]);
    /// ```
    #[must_use]
    pub fn at(kind: TileKind, index: u64, size: u64) -> Option<Self> {
        let level = match kind {
            TileKind::Hashes { level } => level,
            TileKind::Entries => 0,
        };
        let hashes = size.unbounded_shr(u32::from(level).saturating_mul(u32::from(TILE_HEIGHT)));
        let before = index.checked_mul(WIDTH)?;
        let width = hashes.checked_sub(before)?.min(WIDTH);
        let width = u16::try_from(width).ok().filter(|width| *width > 0)?;
        Some(Self { kind, index, width })
    }

    /// Whether a log of `size` entries has this tile, or had it when it was smaller.
    #[must_use]
    pub fn is_within(self, size: u64) -> bool {
        Self::at(self.kind, self.index, size).is_some_and(|tile| self.width <= tile.width)
    }

    /// The tile from which the hash of `node` is computed, as it is in a log of `size` entries. `None`: that log does not
    /// have the node.
    #[must_use]
    pub fn of_node(node: Node, size: u64) -> Option<Self> {
        let end = node.index.checked_add(1)?.checked_mul(node.leaves()).filter(|_| node.leaves() > 0)?;
        if end > size {
            return None;
        }
        let (level, within) = place(node);
        Self::at(
            TileKind::Hashes { level },
            node.index.unbounded_shr(u32::from(TILE_HEIGHT.saturating_sub(within))),
            size,
        )
    }

    /// The bundle that has the entry `index` of a log of `size` entries. `None`: that log does not have the entry.
    #[must_use]
    pub fn of_entry(index: u64, size: u64) -> Option<Self> {
        let tile = Self::at(TileKind::Entries, index / WIDTH, size)?;
        (index < size).then_some(tile)
    }

    /// The tiles and bundles that a log has at `new` entries and not at `old` (for `old` 0: all), by kind and number.
    ///
    /// ```
    /// use mandate_core::log::Tile;
    /// let paths: Vec<_> = Tile::between(255, 257).map(Tile::path).collect();
    /// assert_eq!(paths, ["tile/0/000", "tile/0/001.p/1", "tile/1/000.p/1", "tile/entries/000", "tile/entries/001.p/1"]);
    /// ```
    pub fn between(old: u64, new: u64) -> impl Iterator<Item = Self> {
        let levels = (0..=MAX_LEVEL / TILE_HEIGHT).map(|level| (level, TileKind::Hashes { level }));
        levels.chain([(0, TileKind::Entries)]).flat_map(move |(level, kind)| {
            let bits = u32::from(level).saturating_mul(u32::from(TILE_HEIGHT));
            let [had, has] = [old, new].map(|size| size.unbounded_shr(bits));
            let first = if has > had { had / WIDTH } else { u64::MAX };
            (first..=has / WIDTH).map_while(move |index| Self::at(kind, index, new))
        })
    }
}

/// The hashes of a tile of `width` hashes.
///
/// # Errors
/// The bytes are not those of as many hashes.
pub fn read_hashes(bytes: &[u8], width: u16) -> Result<Vec<Hash>, TileRefused> {
    let expected = usize::from(width).saturating_mul(HASH_BYTES);
    let (hashes, rest) = bytes.as_chunks();
    if bytes.len() != expected || !rest.is_empty() {
        return Err(TileRefused::Bytes { width, expected, found: bytes.len() });
    }
    Ok(hashes.iter().copied().map(Hash::new).collect())
}

/// The level of the tile that has a node, and the height of the node above the tile's hashes.
fn place(node: Node) -> (u8, u8) {
    (node.level / TILE_HEIGHT, node.level % TILE_HEIGHT)
}

/// The hash of a node from the hashes of its tile, see [`Tile::of_node`]. `None`: the tile is too narrow.
pub(super) fn node_hash(node: Node, hashes: &[Hash]) -> Option<Hash> {
    let (_, within) = place(node);
    let count = 1_usize.unbounded_shl(u32::from(within));
    let place_in_level = node.index.unbounded_shl(u32::from(within));
    let first = usize::try_from(place_in_level % WIDTH).ok()?;
    let mut level = hashes.get(first..first.checked_add(count)?)?.to_vec();
    while level.len() > 1 {
        level = level.chunks(2).map(joined).collect();
    }
    level.first().copied()
}

fn small(text: &str, least: u8, most: u8) -> Option<u8> {
    let number = super::decimal::read(text).and_then(|number| u8::try_from(number).ok())?;
    (least..=most).contains(&number).then_some(number)
}

fn index_path(index: u64) -> String {
    let mut path = format!("{:03}", index % 1000);
    let mut rest = index / 1000;
    while rest > 0 {
        path.insert_str(0, &format!("x{:03}/", rest % 1000));
        rest /= 1000;
    }
    path
}

fn read_index(text: &str) -> Option<u64> {
    let (before, last) = text.rsplit_once('/').map_or(("", text), |(before, last)| (before, last));
    let groups = before.split('/').filter(|_| !before.is_empty()).map(|group| group.strip_prefix('x'));
    let mut index = 0_u64;
    for group in groups.chain([Some(last)]) {
        let digits = group.filter(|group| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit()))?;
        index = index.checked_mul(1000)?.checked_add(digits.parse().ok()?)?;
    }
    // Groups of zeros before the number are a second spelling.
    (index_path(index) == text).then_some(index)
}
