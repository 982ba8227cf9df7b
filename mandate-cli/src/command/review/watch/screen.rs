//! The screen: the queue above, the selected request beside the mandate that governs and what its agent paid below, keys and
//! questions in the last line. Each part is as high as its content, if there is room. What does not fit ends with a sign.

use mandate_core::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, List, ListState, Paragraph};

use super::details::{self, left};
use super::entry::Entry;
use super::fitted::{CUT, broken, fit, fit_both, wrapped};
use super::worker::MOST;
use super::{Asking, Payment, Queue};
use crate::environment;
use crate::style::printable;
use crate::table::{Field, agent, recipient, text};
use crate::when::span;
use crate::wrap::{each_line, hanging};

/// The least height of the queue, with its line above.
const QUEUE_HEIGHT: u16 = 3;
/// The height of one line in a frame.
const FRAMED_HEIGHT: u16 = 3;
/// The most lines of a question. Of a longer one the end is shown.
const QUESTION_HEIGHT: usize = 6;
/// What marks the selected line, and as many spaces before the others.
const MARK: &str = "> ";

/// The columns of one line of the queue.
const LINE: [Field; 3] = [
    text("", "request.amount request.currency"),
    agent("", "request.agent"),
    recipient("", "request.recipient"),
];
/// What is between the one who pays and the one who is paid.
const PAYS: &str = " -> ";
/// The columns of an amount, unless it needs more.
const AMOUNT_WIDTH: usize = 14;

/// The heights of the queue, of request and mandate, and of what the agent paid.
pub(super) type Heights = [u16; 3];

/// What is shown of the selected request: the lines of each panel, and the title of the last one.
struct About {
    request: Vec<String>,
    mandate: Vec<String>,
    title: String,
    paid: Vec<String>,
}

pub(super) fn draw(queue: &mut Queue, frame: &mut Frame<'_>) {
    let now = environment::now();
    if matches!(queue.asking, Asking::Help) {
        let width = inner(frame.area());
        return panel(frame, frame.area(), "Keys", &help(width));
    }
    let about = queue.chosen.as_ref().map(|payment| About::of(queue, payment, inner(frame.area()), now));
    let foot_height = height(foot(queue, frame.area().width).height());
    let room = frame.area().height.saturating_sub(foot_height).saturating_sub(1);
    let [list, details, paid] = heights(queue, about.as_ref(), frame.area().width, room);
    queue.heights = [list, details, paid];
    let queue = &*queue;
    let parts = [1, list, details, paid, foot_height].map(Constraint::Length);
    let [head, list, details, paid, foot_area] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(title(queue, usize::from(head.width)), head);
    waiting(queue, frame, list, now);
    if let Some(about) = about {
        let [request, mandate] = halves(details);
        panel(frame, request, "Request", &about.request);
        panel(frame, mandate, "Mandate", &about.mandate);
        panel(frame, paid, &about.title, &about.paid);
    } else if details.height > 0 {
        frame.render_widget(Paragraph::new(NOT_SELECTED).block(Block::bordered()), details);
    }
    frame.render_widget(foot(queue, frame.area().width), foot_area);
}

/// The heights in a room of so many rows. While something is read they stay as they were: they would change twice.
fn heights(queue: &Queue, about: Option<&About>, width: u16, room: u16) -> Heights {
    let list = height(queue.shown().len().max(1)).saturating_add(1);
    let Some(about) = about else {
        let details = if queue.shown().is_empty() { 0 } else { FRAMED_HEIGHT };
        return shares(room, list, details, 0);
    };
    let is_read = queue.mandate.is_some() && queue.paid.is_some();
    let before = queue.heights;
    if !is_read && before[2] > 0 && before.iter().sum::<u16>() == room {
        return before;
    }
    let [request, mandate] = halves(Rect::new(0, 0, width, room));
    let framed = |lines: &[String], area: Rect| height(in_width(lines, area).len()).saturating_add(2);
    let details = framed(&about.request, request).max(framed(&about.mandate, mandate));
    let paid = if queue.paid.is_some() { height(about.paid.len()).saturating_add(2) } else { room };
    shares(room, list, details, paid)
}

/// How so many rows are shared by the queue, the details and what the agent paid, each of which would fill so many. The
/// details come first, so that they are whole; of the rest the other two get half each, or what the other one leaves.
fn shares(room: u16, queue: u16, details: u16, paid: u16) -> Heights {
    let details = details.min(room.saturating_sub(QUEUE_HEIGHT));
    let rest = room.saturating_sub(details);
    let list = queue.min(rest.div_ceil(2)).max(rest.saturating_sub(paid)).max(QUEUE_HEIGHT).min(rest);
    let paid = rest.saturating_sub(list);
    if paid < FRAMED_HEIGHT { [rest, details, 0] } else { [list, details, paid] }
}

fn height(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// The places of the request and of the mandate.
fn halves(details: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(details)
}

impl About {
    /// What is known so far, with what was paid in lines of at most `width` columns.
    fn of(queue: &Queue, payment: &Payment, width: usize, now: Timestamp) -> Self {
        let reading = || vec!["reading ...".to_owned()];
        let month = queue.mandate.as_deref().zip(queue.usage.as_deref());
        let request = details::request(&payment.decision, month, now);
        let mandate = queue.mandate.as_deref();
        let mandate = mandate.map_or_else(reading, |mandate| details::mandate(mandate, &payment.decision));
        let (title, paid) = match &queue.paid {
            Some(payments) => details::paid(&payment.decision, payments, now),
            None => ("Paid".to_owned(), reading()),
        };
        Self { request, mandate, title, paid: paid.iter().map(|line| fit(line, width)).collect() }
    }
}

fn title(queue: &Queue, width: usize) -> Line<'_> {
    let mut spans = Vec::new();
    if queue.live {
        let style = Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD);
        spans.push(Span::styled(" LIVE ", style));
    } else {
        spans.push(Span::raw("sandbox"));
    }
    let mode =
        if queue.mode.is_empty() { String::new() } else { format!("  {} mode", printable(&queue.mode)) };
    spans.push(Span::raw(mode + "  "));
    let count = match queue.waiting.len() {
        _ if !queue.looked => "looking ...".to_owned(),
        count if count >= usize::try_from(MOST).unwrap_or(usize::MAX) => format!("{count} or more waiting"),
        count => format!("{count} waiting"),
    };
    spans.push(Span::styled(count, Style::new().add_modifier(Modifier::BOLD)));
    if !queue.filter.is_empty() {
        let shown = queue.shown().len();
        spans.push(Span::raw(format!(", {shown} with `{}`", printable(&queue.filter))));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    spans.push(Span::raw(fit(&format!("  {}", queue.address), width.saturating_sub(used))));
    Line::from(spans)
}

fn waiting(queue: &Queue, frame: &mut Frame<'_>, area: Rect, now: Timestamp) {
    let block = Block::new().borders(Borders::TOP);
    let shown = queue.shown();
    if queue.looked && shown.is_empty() {
        let why = if queue.waiting.is_empty() {
            "No review is pending."
        } else {
            "The filter hides all: f changes it."
        };
        return frame.render_widget(Paragraph::new(why).block(block), area);
    }
    let rows = usize::from(area.height).saturating_sub(1);
    let block = if shown.len() > rows {
        let title = format!("{rows} of {} fit here; up and down show the others", shown.len());
        block.title(fit(&title, usize::from(area.width)))
    } else {
        block
    };
    let width = usize::from(area.width).saturating_sub(MARK.len());
    let lines = shown.iter().map(|decision| line(decision, width, now));
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let list = List::new(lines).block(block).highlight_symbol(MARK).highlight_style(style);
    frame.render_stateful_widget(list, area, &mut ListState::default().with_selected(queue.position()));
}

/// A line of the queue, with the time that is left at its end.
fn line(decision: &str, width: usize, now: Timestamp) -> String {
    let [amount, agent, recipient] = LINE.map(|field| field.name(decision).unwrap_or_default());
    let left = left(decision, now).map(|seconds| format!("{:>8}", span(seconds))).unwrap_or_default();
    let width = width.saturating_sub(left.chars().count());
    let amount = format!("{amount:>AMOUNT_WIDTH$}  ");
    let room = width.saturating_sub(Span::raw(amount.as_str()).width()).saturating_sub(PAYS.len());
    let (agent, recipient) = fit_both(&agent, &recipient, room);
    let text = fit(&format!("{amount}{agent}{PAYS}{recipient}"), width);
    let gap = width.saturating_sub(Span::raw(text.as_str()).width());
    format!("{text}{}{left}", " ".repeat(gap))
}

/// The columns within a frame.
fn inner(area: Rect) -> usize {
    usize::from(area.width).saturating_sub(2)
}

/// The lines as they are wrapped within a frame.
fn in_width(lines: &[String], area: Rect) -> Vec<String> {
    lines.iter().flat_map(|line| wrapped(line, inner(area).max(1))).collect()
}

/// Lines in a frame. If they do not fit, the last one says so.
fn panel(frame: &mut Frame<'_>, area: Rect, title: &str, lines: &[String]) {
    let mut lines = in_width(lines, area);
    let height = usize::from(area.height).saturating_sub(2);
    if lines.len() > height {
        let hidden = lines.len().saturating_sub(height).saturating_add(1);
        lines.truncate(height.saturating_sub(1));
        lines.push(fit(&format!("{CUT} {hidden} more lines"), inner(area)));
    }
    let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(fit(title, inner(area)))), area);
}

/// The question, the last message, and the keys.
fn foot(queue: &Queue, width: u16) -> Text<'_> {
    let style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    let width = usize::from(width.max(1));
    let question = |asked: String, keys: &'static str| {
        let mut lines = broken(&asked, width);
        lines.drain(..lines.len().saturating_sub(QUESTION_HEIGHT));
        lines.push(keys.to_owned());
        Text::from(lines.into_iter().map(|line| Line::styled(line, style)).collect::<Vec<_>>())
    };
    let plain = |text: &str| {
        let lines = each_line(text, u16::try_from(width).ok());
        Text::from(lines.lines().map(|line| Line::from(line.to_owned())).collect::<Vec<_>>())
    };
    let said = [&queue.message, &queue.trouble].into_iter().filter(|text| !text.is_empty());
    let said = said.map(|text| printable(text)).collect::<Vec<_>>().join("\n");
    match &queue.asking {
        Asking::Text(Entry::Reason(payment), reason) => {
            let keys = if queue.is_gone(payment) { GONE_KEYS } else { "Enter denies, Esc does not" };
            question(format!("Why? {}_", printable(reason)), keys)
        }
        Asking::Text(Entry::Search, text) => {
            question(format!("Search: {}_", printable(text)), "Enter selects the next with it, Esc leaves")
        }
        Asking::Text(Entry::Filter, text) => question(
            format!("Show only with: {}_", printable(text)),
            "Enter filters, empty shows all, Esc leaves",
        ),
        Asking::Confirmation(answer) => {
            let verb = if answer.denied.is_some() { "deny" } else { "approve" };
            let keys = match (queue.is_gone(&answer.payment), queue.is_settled()) {
                (true, _) => GONE_KEYS,
                (false, false) => "",
                (false, true) => "y does, any other key does not",
            };
            question(format!("LIVE: {verb} {}?", named(&answer.payment)), keys)
        }
        Asking::Nothing | Asking::Help if !said.is_empty() => plain(&said),
        Asking::Nothing | Asking::Help if queue.chosen.is_none() => plain(KEYS_FOR_NOTHING),
        Asking::Nothing | Asking::Help if queue.is_settled() => plain(KEYS),
        Asking::Nothing | Asking::Help => plain(KEYS_BUT_APPROVE),
    }
}

/// A payment, as a question names it.
fn named(payment: &Payment) -> String {
    let values = LINE.map(|field| field.value(&payment.decision).unwrap_or_default());
    let [amount, agent, recipient] = values;
    format!("{amount}, {agent} -> {recipient}, {}", printable(&payment.review))
}

const NOT_SELECTED: &str = "Nothing is selected: press up or down.";
const GONE_KEYS: &str = "this review is gone: Esc";
const KEYS: &str = "a approve  d deny  up/down select  / search  ? help  q quit";
/// The same, while the selection is too recent to be approved.
const KEYS_BUT_APPROVE: &str = "           d deny  up/down select  / search  ? help  q quit";
const KEYS_FOR_NOTHING: &str = "up/down select  f filter  r refresh  ? help  q quit";
/// The columns of the keys in the help.
const KEY_WIDTH: usize = 17;
/// The help: keys, and what they do. Without a key it is a sentence.
const HELP: [(&str, &str); 12] = [
    ("up, down, k, j", "select another request"),
    ("a", "approve the selected request"),
    ("d", "deny it, and say why"),
    ("/", "search: select the next request that contains a text"),
    ("n", "select the next one with that text"),
    ("f", "filter: show only the requests that contain a text"),
    ("r", "ask the service again, which happens by itself, too"),
    ("?", "this page"),
    ("q", "quit"),
    (
        "",
        "A text is looked for in amount, agent, recipient, category and review. While it is typed, Ctrl-U clears it.",
    ),
    (
        "",
        "In a live environment, y confirms an answer. A key that follows a change on the screen too soon is ignored.",
    ),
    ("", "Any key goes back."),
];

/// The lines of the help.
fn help(width: usize) -> Vec<String> {
    let width = u16::try_from(width).ok();
    let entry = |(key, text): (&str, &str)| {
        let start = if key.is_empty() { String::new() } else { format!("{key:<KEY_WIDTH$}") };
        hanging(&start, text, width).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    HELP.into_iter().flat_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;

    use super::super::worker::Report;

    #[test]
    fn help_is_wrapped_or_says_that_it_is_cut() {
        for (width, height) in [(80, 24), (60, 24), (40, 12)] {
            let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
            let lines = help(usize::from(width) - 2);
            terminal.draw(|frame| panel(frame, frame.area(), "Keys", &lines)).unwrap();
            let shown = terminal.backend().to_string();
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            for word in lines.iter().take(usize::from(height) - 3).flat_map(|line| words(line)) {
                assert!(shown.contains(&word), "{word} at {width}:\n{shown}");
            }
            assert_eq!(shown.contains("Any key goes back."), !shown.contains("more lines"), "{shown}");
        }
    }

    #[test]
    fn each_part_gets_the_rows_that_the_others_leave() {
        // Queue, details and paid, of a room, for what each would fill.
        for ((room, queue, details, paid), heights) in [
            // All fit: the queue has what is left.
            ((48, 4, 12, 8), [28, 12, 8]),
            // Not all: half each, or what the other one leaves.
            ((48, 60, 12, 60), [18, 12, 18]),
            ((48, 60, 12, 8), [28, 12, 8]),
            ((48, 4, 12, 60), [4, 12, 32]),
            ((22, 7, 12, 6), [5, 12, 5]),
            // Too little: the details first, then the queue.
            ((17, 7, 14, 6), [3, 14, 0]),
            ((18, 7, 40, 6), [3, 15, 0]),
            ((2, 7, 12, 6), [2, 0, 0]),
        ] {
            assert_eq!(shares(room, queue, details, paid), heights, "{room}, {queue}, {details}, {paid}");
        }
    }

    #[test]
    fn no_row_stays_empty_while_content_is_cut() {
        const LONG: &str = "a-name-that-is-rather-long-for-it";
        let decision = |at: usize, state: &str| {
            format!(
                r#"{{"jti":"dec_{at}","iat":0,"mandate":"mnd_1","request":{{"amount":3{at},"currency":"USD","agent":"agt_{LONG}",
                "recipient":"vendor:{LONG}","category":"cloud.compute"}}{state}}}"#
            )
        };
        let waiting = |at| {
            decision(
                at,
                &format!(r#","review":{{"id":"rev_{at:0>26}","expires_at":"2999-01-01T00:00:00Z"}}"#),
            )
        };
        let mandate = r#"{"id":"mnd_2","status":"active","principal":"role:head-of-it","expires":"2999-01-01","categories":["cloud"],
            "limits":{"per_transaction":500,"currency":"USD","per_month":2000}}"#;
        for (columns, rows, count) in [(60, 20, 9), (80, 24, 9), (80, 24, 2), (120, 50, 9), (120, 50, 40)] {
            let mut queue = Queue::new(false, "http://127.0.0.1".to_owned());
            queue.handle(Report::Waiting((0..count).map(waiting).collect())).unwrap();
            queue.mandate = Some(mandate.to_owned());
            queue.usage = Some(r#"{"data":[]}"#.to_owned());
            queue.paid = Some((0..9).map(|at| decision(at, "")).collect());
            let mut terminal = ratatui::Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| draw(&mut queue, frame)).unwrap();
            let shown = terminal.backend().to_string();
            let is_cut = shown.contains("more lines") || shown.contains("fit here");
            let lines: Vec<&str> = shown.lines().map(|line| line.trim_matches(['"', '│', ' '])).collect();
            assert!(!is_cut || lines.iter().all(|line| !line.is_empty()), "{columns}x{rows}:\n{shown}");
            assert_eq!(is_cut, rows < 50 || count > 9, "{columns}x{rows}:\n{shown}");
            assert!(shown.contains("changed    since the"), "{columns}x{rows}:\n{shown}");
        }
    }

    #[test]
    fn a_line_of_the_queue_says_who_pays_whom() {
        let decision = |agent: &str, recipient: &str| {
            format!(
                r#"{{"request":{{"amount":300,"currency":"USD","agent":"agt_{agent}","recipient":"vendor:{recipient}"}}}}"#
            )
        };
        let now = Timestamp::from_seconds(0);
        let shown =
            |agent: &str, recipient: &str| line(&decision(agent, recipient), 50, now).trim_end().to_owned();
        assert_eq!(shown("purchaser", "openrouter"), "       300 USD  purchaser -> openrouter");
        let long = "a-name-that-is-rather-long";
        assert_eq!(shown(long, "acme"), "       300 USD  a-name-that-is-rather-long -> acme");
        assert_eq!(shown("buyer", long), "       300 USD  buyer -> a-name-that-is-rather-lo…");
        assert_eq!(shown(long, long), "       300 USD  a-name-that-is… -> a-name-that-is…");
    }
}
