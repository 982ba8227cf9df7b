//! The options that every command has.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::ValueEnum;

/// The flags of every command.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print JSON instead of text; with field names, only those fields: --json=jti,request.amount
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "FIELDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_delimiter = ',',
        display_order = 100
    )]
    pub(crate) json: Option<Vec<String>>,

    /// Filter the JSON output with this jq expression
    #[arg(long, global = true, hide_short_help = true, value_name = "EXPR", display_order = 101)]
    pub(crate) jq: Option<String>,

    /// The output format [default: table]
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "FORMAT",
        value_enum,
        display_order = 102
    )]
    pub(crate) format: Option<Format>,

    /// How tables show times [default: relative on a terminal, full elsewhere]
    #[arg(long, global = true, hide_short_help = true, value_name = "HOW", value_enum, display_order = 102)]
    pub(crate) time: Option<Times>,

    /// Use this profile; overrides environment variables [env: MANDATE_PROFILE]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", display_order = 103, value_parser = crate::profile::name, add = crate::profile::names())]
    pub(crate) profile: Option<String>,

    /// Confirm a change in a live environment; needed without a terminal
    #[arg(long, global = true, hide_short_help = true, display_order = 104)]
    pub(crate) yes: bool,

    /// Show each request and its answer on standard error, with keys masked
    #[arg(long, global = true, hide_short_help = true, display_order = 105)]
    pub(crate) verbose: bool,

    /// When to use colour
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        display_order = 106
    )]
    pub(crate) color: Colour,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines of text, and tables that fit the terminal
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line, printed as soon as it is available
    Ndjson,
    /// Comma-separated values, with a header: for `decision list`, `usage` and `report`
    Csv,
}

/// How times are shown in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Times {
    /// As "2 min ago"
    Relative,
    /// As RFC 3339, to the millisecond
    Full,
}

/// When colour is used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On terminals, unless NO_COLOR or CLICOLOR forbids it
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
