//! Which columns a terminal has room for, and how wide they are.

use super::{Field, GAP, Kind, Tabular};

/// How names and states are shown that may be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Whole,
    Cut,
}

impl Tabular {
    /// How narrow each column may be: names and states as wide as they are, or cut.
    fn least(&self, names: Names) -> Vec<u16> {
        let may_be_cut =
            |column: &Field| column.kind == Kind::Text || (names == Names::Cut && column.is_text());
        let columns = self.columns.iter().zip(&self.widths);
        columns
            .map(|(column, width)| if may_be_cut(column) { *width.min(&column.least) } else { *width })
            .collect()
    }

    /// The columns that these widths need, the spaces between them included, without the hidden ones.
    fn sum(widths: &[u16], shown: &[bool]) -> u16 {
        let shown = widths.iter().zip(shown).filter(|(_, shown)| **shown);
        shown.map(|(width, _)| width.saturating_add(GAP)).fold(0, u16::saturating_add)
    }

    /// The width of each column that is shown. What is left goes to the narrowest of the texts that are cut.
    pub(super) fn arranged(&self) -> Vec<Option<u16>> {
        let Some(room) = self.look.width.map(|width| width.saturating_add(GAP)) else {
            return self.widths.iter().map(|width| Some(*width)).collect();
        };
        let whole = self.least(Names::Whole);
        let least = if Self::sum(&whole, &self.shown) <= room { whole } else { self.least(Names::Cut) };
        let used = Self::sum(&least, &self.shown);
        let shown = least.into_iter().zip(&self.shown);
        let mut widths: Vec<Option<u16>> = shown.map(|(width, shown)| shown.then_some(width)).collect();
        for _ in used..room {
            let cut = widths
                .iter_mut()
                .zip(&self.widths)
                .filter_map(|(width, whole)| width.as_mut().filter(|width| **width < *whole));
            let Some(narrowest) = cut.min() else { break };
            *narrowest = narrowest.saturating_add(1);
        }
        widths
    }

    /// Whether each column is shown. The first to be hidden are those that can be spared, as many as are needed to show
    /// names whole. Then names are cut, and only then columns are hidden from the last on; one is always shown.
    pub(super) fn fitting(&self) -> Vec<bool> {
        let room = self.look.width.map_or(u16::MAX, |width| width.saturating_add(GAP));
        let spare = |at: &usize| self.columns.get(*at).map_or(0, |column| column.spare);
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        order.sort_by_key(|at| (spare(at), *at));
        let (whole, cut) = (self.least(Names::Whole), self.least(Names::Cut));
        let mut shown = vec![true; self.columns.len()];
        for at in order.into_iter().skip(1).rev() {
            let least = if spare(&at) > 0 { &whole } else { &cut };
            if Self::sum(least, &shown) <= room {
                break;
            }
            if let Some(shown) = shown.get_mut(at) {
                *shown = false;
            }
        }
        shown
    }
}
