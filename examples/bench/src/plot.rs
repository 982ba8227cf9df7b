//! The tables of docs/, drawn as bars: from the text of a page to the text of an SVG.
//!
//! The plots are made from the tables as they are written, so that a page and its plots cannot disagree.

use std::fmt::Write as _;
use std::path::Path;

/// A plot of one table.
#[derive(Debug)]
pub(crate) struct Plot {
    /// The file's name, without its folder and ending.
    pub(crate) name: &'static str,
    /// The page with the table.
    pub(crate) document: &'static str,
    /// The name of the marks around the table.
    pub(crate) marks: &'static str,
    title: &'static str,
    /// The column whose cells are headings above their bars.
    group: Option<&'static str>,
    /// The column that names the bars.
    label: &'static str,
    /// The column with the figures.
    value: &'static str,
}

const PERFORMANCE: &str = "docs/performance.md";
const NOTES: &str = "docs/performance-notes.md";
const LOAD: &str = "Load";

/// All plots.
pub(crate) const PLOTS: [Plot; 8] = [
    Plot {
        name: "decisions",
        document: PERFORMANCE,
        marks: "bench",
        title: "Requests a second (more is better)",
        group: Some(LOAD),
        label: "",
        value: "Requests/s",
    },
    Plot {
        name: "latency",
        document: PERFORMANCE,
        marks: "bench",
        title: "99th percentile of the latency, ms (less is better)",
        group: Some(LOAD),
        label: "",
        value: "p99 ms",
    },
    Plot {
        name: "core",
        document: PERFORMANCE,
        marks: "core",
        title: "Processor time (less is better)",
        group: Some("Contest"),
        label: "",
        value: "Processor time each",
    },
    Plot {
        name: "verify",
        document: PERFORMANCE,
        marks: "verify",
        title: "Processor time to verify a token, µs (less is better)",
        group: None,
        label: "Verified with",
        value: "Processor time a token, µs",
    },
    Plot {
        name: "tokens",
        document: NOTES,
        marks: "tokens",
        title: "mandate verify --tokens: tokens a second (more is better)",
        group: None,
        label: "`mandate verify --tokens`",
        value: "Tokens/s",
    },
    Plot {
        name: "log",
        document: PERFORMANCE,
        marks: "log",
        title: "Speed kept with the long log (1.00: as fast as with the short one)",
        group: None,
        label: "With the log at",
        value: "speed kept",
    },
    Plot {
        name: "deliveries",
        document: NOTES,
        marks: "deliveries",
        title: "Decisions a second, by the number of webhooks (more is better)",
        group: None,
        label: "Webhooks",
        value: "Decisions/s",
    },
    Plot {
        name: "postgres",
        document: "docs/scaling.md",
        marks: "bench",
        title: "On PostgreSQL: a second (more is better)",
        group: None,
        label: "",
        value: "a second",
    },
];

/// Draws the plots of one table again, from the page as it is now; `root` is the top of the repository.
pub(crate) fn renew(root: &Path, document: &str, marks: &str) -> Result<(), String> {
    for plot in PLOTS.iter().filter(|plot| plot.document == document && plot.marks == marks) {
        let failed = |path: &str, e: std::io::Error| format!("{path}: {e}");
        let page = std::fs::read_to_string(root.join(document)).map_err(|e| failed(document, e))?;
        std::fs::write(root.join(plot.path()), plot.draw(&page)?).map_err(|e| failed(&plot.path(), e))?;
    }
    Ok(())
}

const WIDTH: f64 = 840.0;
const LEFT: f64 = 400.0;
const LONGEST: f64 = 340.0;
const LINE: f64 = 22.0;
/// The colours of our own bars and of the others'.
const COLOURS: (&str, &str) = ("#1f6feb", "#9aa4af");

/// One bar.
#[derive(Debug)]
struct Bar {
    group: String,
    label: String,
    /// As the table has it.
    text: String,
    value: f64,
}

impl Plot {
    /// Where the plot is kept, from the top of the repository.
    pub(crate) fn path(&self) -> String {
        format!("docs/plots/{}.svg", self.name)
    }

    /// The SVG, from the text of the page that holds the table.
    pub(crate) fn draw(&self, page: &str) -> Result<String, String> {
        svg(self.title, &self.bars(page)?).map_err(|e| e.to_string())
    }

    /// A row without a figure has no bar.
    fn bars(&self, page: &str) -> Result<Vec<Bar>, String> {
        let (begin, end) =
            (format!("<!-- {}: begin -->", self.marks), format!("<!-- {}: end -->", self.marks));
        let table = page.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
        let (table, _) = table.ok_or_else(|| format!("{} has no marks for {}", self.document, self.marks))?;
        let mut rows = table.lines().filter(|line| line.starts_with('|')).map(cells);
        let head = rows.next().unwrap_or_default();
        let column = |name: &str| {
            let found = head.iter().position(|cell| cell == name);
            found.ok_or_else(|| format!("{}: the table {} has no column `{name}`", self.document, self.marks))
        };
        let (label, value) = (column(self.label)?, column(self.value)?);
        let group = self.group.map(column).transpose()?;
        let cell =
            |row: &[String], at: usize| row.get(at).map(|cell| cell.replace('`', "")).unwrap_or_default();
        let bar = |row: Vec<String>| {
            let text = cell(&row, value);
            Some(Bar {
                group: group.map(|at| cell(&row, at)).unwrap_or_default(),
                label: cell(&row, label),
                value: figure(&text)?,
                text,
            })
        };
        Ok(rows.filter_map(bar).collect())
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The figure of a cell; times are compared in microseconds.
fn figure(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: f64 = number.parse().ok()?;
    Some(if unit == "ns" { number / 1e3 } else { number })
}

/// Bars below each other. Those of a group are as long as they compare with the longest of that group.
fn svg(title: &str, bars: &[Bar]) -> Result<String, std::fmt::Error> {
    let mut body = String::new();
    let mut at = 2.0 * LINE;
    let mut group = "";
    for bar in bars {
        if bar.group != group {
            group = &bar.group;
            writeln!(
                body,
                r#"  <text x="12" y="{:.0}" font-weight="600">{}</text>"#,
                at + 16.0,
                escaped(group)
            )?;
            at += LINE;
        }
        let others = bars.iter().filter(|other| other.group == bar.group).map(|other| other.value);
        let length = LONGEST * bar.value / others.fold(f64::MIN_POSITIVE, f64::max);
        let ours =
            bar.label.starts_with("mandate") || !bars.iter().any(|bar| bar.label.starts_with("mandate"));
        let colour = if ours { COLOURS.0 } else { COLOURS.1 };
        writeln!(
            body,
            r#"  <text x="{:.0}" y="{:.0}" text-anchor="end">{}</text>
  <rect x="{LEFT:.0}" y="{:.0}" width="{length:.1}" height="14" fill="{colour}"/>
  <text x="{:.1}" y="{:.0}">{}</text>"#,
            LEFT - 8.0,
            at + 16.0,
            escaped(&bar.label),
            at + 5.0,
            LEFT + length + 6.0,
            at + 16.0,
            escaped(&bar.text)
        )?;
        at += LINE;
    }
    let height = at + LINE / 2.0;
    let title = escaped(title);
    Ok(format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" width="{WIDTH:.0}" role="img">
  <title>{title}</title>
  <rect width="100%" height="100%" fill="#ffffff"/>
  <g font-family="system-ui, sans-serif" font-size="13" fill="#1f2328">
  <text x="12" y="24" font-size="15" font-weight="600">{title}</text>
{body}  </g>
</svg>
"##
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
