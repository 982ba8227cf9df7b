//! The screen: the queue above, the selected request beside its mandate below, keys and questions in the last
//! line.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, List, ListState, Paragraph, Wrap};

use super::{Asking, Payment, Queue};
use crate::style::printable;
use crate::table::{Field, NO_LIMIT, NONE, seconds, text};

/// The height of the details, with their frame.
const DETAILS_HEIGHT: u16 = 11;
/// The most lines of a question. Of a longer one the end is shown.
const QUESTION_HEIGHT: usize = 6;

/// The rows about the request.
const REQUEST: [Field; 8] = [
    text("amount", "request.amount request.currency"),
    text("recipient", "request.recipient"),
    text("category", "request.category"),
    text("agent", "request.agent"),
    seconds("asked", "iat"),
    text("until", "review.expires_at"),
    text("spent", "basis.spent"),
    text("review", "review.id"),
];
/// The rows about the mandate.
const MANDATE: [Field; 7] = [
    text("limit", "limits.per_transaction limits.currency"),
    text("per month", "limits.per_month limits.currency").or(NO_LIMIT),
    text("review above", "review_above limits.currency").or(NONE),
    text("for", "categories"),
    text("expires", "expires"),
    text("principal", "principal"),
    text("status", "status"),
];
/// The columns of one line of the queue.
const LINE: [Field; 3] =
    [text("", "request.amount request.currency"), text("", "request.agent"), text("", "request.recipient")];

pub(super) fn draw(queue: &Queue, frame: &mut Frame<'_>) {
    let asked = foot(queue, frame.area().width);
    let [head, list, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(DETAILS_HEIGHT),
        Constraint::Length(u16::try_from(asked.height()).unwrap_or(u16::MAX)),
    ])
    .areas(frame.area());
    frame.render_widget(title(queue), head);
    waiting(queue, frame, list);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(details);
    match &queue.chosen {
        None if queue.waiting.is_empty() => {}
        None => frame.render_widget(
            Paragraph::new("Nothing is selected: press up or down.").block(Block::bordered()),
            details,
        ),
        Some(Payment { decision, mandate, .. }) => {
            frame.render_widget(panel("Request", &REQUEST, decision), left);
            let shown = match (mandate, &queue.mandate) {
                (Some(_), None) => Paragraph::new("reading ...").block(Block::bordered().title("Mandate")),
                (_, read) => panel("Mandate", &MANDATE, read.as_deref().unwrap_or_default()),
            };
            frame.render_widget(shown, right);
        }
    }
    frame.render_widget(asked, foot);
}

fn title(queue: &Queue) -> Line<'_> {
    let mut spans = Vec::new();
    if queue.live {
        let style = Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD);
        spans.push(Span::styled(" LIVE ", style));
        spans.push(Span::raw(" "));
    }
    let count =
        if queue.looked { format!("{} waiting", queue.waiting.len()) } else { "looking ...".to_owned() };
    spans.push(Span::styled(count, Style::new().add_modifier(Modifier::BOLD)));
    spans.push(Span::raw(format!("  {}", queue.address)));
    Line::from(spans)
}

fn waiting(queue: &Queue, frame: &mut Frame<'_>, area: Rect) {
    let block = Block::new().borders(Borders::TOP);
    if queue.looked && queue.waiting.is_empty() {
        frame.render_widget(Paragraph::new("No review is pending.").block(block), area);
        return;
    }
    let lines = queue.waiting.iter().map(|decision| {
        let values: Vec<String> =
            LINE.iter().map(|field| field.value(decision).unwrap_or_default()).collect();
        let [amount, agent, recipient] = values.as_slice() else { return String::new() };
        format!("{amount:>16}  {agent} -> {recipient}")
    });
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let list = List::new(lines).block(block).highlight_symbol("> ").highlight_style(style);
    frame.render_stateful_widget(list, area, &mut ListState::default().with_selected(queue.position()));
}

fn panel<'a>(title: &'a str, fields: &[Field], json: &str) -> Paragraph<'a> {
    let lines: Vec<Line<'a>> = fields
        .iter()
        .filter_map(|field| Some(Line::from(format!("{:<11}{}", field.label, field.value(json)?))))
        .collect();
    Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered().title(title))
}

/// The question, the last message, and the keys.
fn foot(queue: &Queue, width: u16) -> Text<'_> {
    let style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    let question = |asked: String, keys: &'static str| {
        let mut lines = broken(&asked, usize::from(width.max(1)));
        lines.drain(..lines.len().saturating_sub(QUESTION_HEIGHT));
        lines.push(keys.to_owned());
        Text::from(lines.into_iter().map(|line| Line::styled(line, style)).collect::<Vec<_>>())
    };
    match &queue.asking {
        Asking::Reason(payment, reason) => {
            let keys = if queue.is_gone(payment) { GONE_KEYS } else { "Enter denies, Esc does not" };
            question(format!("Why? {}_", printable(reason)), keys)
        }
        Asking::Confirmation(answer) => {
            let verb = if answer.denied.is_some() { "deny" } else { "approve" };
            let keys = match (queue.is_gone(&answer.payment), queue.is_settled()) {
                (true, _) => GONE_KEYS,
                (false, false) => "",
                (false, true) => "y does, any other key does not",
            };
            question(format!("LIVE: {verb} {}?", named(&answer.payment)), keys)
        }
        Asking::Nothing if !queue.message.is_empty() => Text::raw(printable(&queue.message)),
        Asking::Nothing if queue.chosen.is_none() => Text::raw(KEYS_FOR_NOTHING),
        Asking::Nothing if queue.is_settled() => Text::raw(KEYS),
        Asking::Nothing => Text::raw(KEYS_BUT_APPROVE),
    }
}

/// A payment, as a question names it.
fn named(payment: &Payment) -> String {
    let values = LINE.map(|field| field.value(&payment.decision).unwrap_or_default());
    let [amount, agent, recipient] = values;
    format!("{amount}, {agent} -> {recipient}, {}", printable(&payment.review))
}

/// The text in lines of at most `width` columns.
fn broken(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut columns) = (vec![String::new()], 0_usize);
    for c in text.chars() {
        let wide = Span::raw(c.to_string()).width();
        if columns.saturating_add(wide) > width {
            lines.push(String::new());
            columns = 0;
        }
        columns = columns.saturating_add(wide);
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
    }
    lines
}

const GONE_KEYS: &str = "this review is gone: Esc";
const KEYS: &str = "a approve  d deny  up/down select  r refresh  q quit";
/// The same, while the selection is too recent to be approved.
const KEYS_BUT_APPROVE: &str = "           d deny  up/down select  r refresh  q quit";
const KEYS_FOR_NOTHING: &str = "up/down select  r refresh  q quit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_breaks_at_the_edge_of_the_terminal() {
        assert_eq!(broken("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(broken("\u{4e00}\u{4e00}a", 3), ["\u{4e00}", "\u{4e00}a"]);
        assert_eq!(broken("", 3), [""]);
    }
}
