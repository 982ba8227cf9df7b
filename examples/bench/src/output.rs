//! The results of a run: tables on the terminal and, with `--write`, in documents with their plots; figures as JSON.

use std::path::Path;

use mandate_server::clock::{Clock as _, SystemClock};
use serde::Serialize;
use serde_json::Value;

use crate::{Args, Failure, Part, plot, table};

/// What one contender did in one case, round by round.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    case: String,
    contender: String,
    /// The figures of each round.
    rounds: Vec<Value>,
}

/// A part that has been measured: its tables, and the figures that they were made from.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) text: String,
    pub(crate) series: Vec<Series>,
}

/// Where it goes.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    args: &'a Args,
    document: Document,
}

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Document {
    /// When the run began.
    began: String,
    processors: usize,
    seconds: u64,
    rounds: usize,
    results: Vec<OfPart>,
}

#[derive(Debug, Serialize)]
struct OfPart {
    part: Part,
    #[serde(flatten)]
    series: Series,
}

impl Series {
    /// Of the figures of all rounds; what of the names is Markdown is left out.
    pub(crate) fn of(
        case: &str,
        contender: &str,
        rounds: impl IntoIterator<Item = impl Serialize>,
    ) -> Result<Self, Failure> {
        let [case, contender] = [case, contender].map(|name| name.replace('`', ""));
        let rounds = rounds.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        Ok(Self { case, contender, rounds })
    }
}

impl<'a> Output<'a> {
    /// Begins with nothing measured. Reports a file that cannot be written now, and not at the end.
    pub(crate) fn begin(args: &'a Args) -> Result<Self, Failure> {
        let document = Document {
            began: SystemClock.now().to_string(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            seconds: args.seconds(),
            rounds: args.rounds(),
            results: Vec::new(),
        };
        let output = Self { args, document };
        output.save()?;
        Ok(output)
    }

    /// Prints what was measured of a part, puts its tables where they belong, and adds its figures to the file.
    pub(crate) fn publish(&mut self, part: Part, measured: Measured) -> Result<(), Failure> {
        let Measured { text, series } = measured;
        println!("{text}");
        self.document.results.extend(series.into_iter().map(|series| OfPart { part, series }));
        self.save()?;
        if self.args.write {
            let (document, marks) = part.place();
            table::write(Path::new(document), marks, &text)?;
            plot::renew(Path::new("."), document, marks)?;
        }
        Ok(())
    }

    /// Writes the file whole, after each part: what has been measured is kept when a later part fails.
    fn save(&self) -> Result<(), Failure> {
        let Some(path) = &self.args.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(&self.document)?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()).into())
    }
}
