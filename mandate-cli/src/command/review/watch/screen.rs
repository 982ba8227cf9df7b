//! How the queue looks: what waits above, the chosen request beside its mandate below, keys and questions in the last line.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, List, ListState, Paragraph, Wrap};

use super::{Asking, Queue};
use crate::table::{Field, seconds, text};

/// Lines of the details, frame included.
const DETAILS_HEIGHT: u16 = 11;

/// What is asked for.
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
/// What was granted.
const MANDATE: [Field; 7] = [
    text("limit", "limits.per_transaction limits.currency"),
    text("per month", "limits.per_month limits.currency"),
    text("asks above", "review_above"),
    text("for", "categories"),
    text("expires", "expires"),
    text("principal", "principal"),
    text("status", "status"),
];
/// What stands in one line of the queue.
const LINE: [Field; 3] =
    [text("", "request.amount request.currency"), text("", "request.agent"), text("", "request.recipient")];

pub(super) fn draw(queue: &Queue, frame: &mut Frame<'_>) {
    let [head, list, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(DETAILS_HEIGHT),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(queue), head);
    waiting(queue, frame, list);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(details);
    let chosen = queue.position().and_then(|at| queue.waiting.get(at)).map_or("", String::as_str);
    let mandate = crate::fields::text(chosen, "mandate").and_then(|id| queue.mandates.get(&id));
    frame.render_widget(panel("Request", &REQUEST, chosen), left);
    frame.render_widget(panel("Mandate", &MANDATE, mandate.map_or("", String::as_str)), right);
    frame.render_widget(last_line(queue), foot);
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
        frame.render_widget(Paragraph::new("Nothing waits for an answer.").block(block), area);
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

/// What is asked, what was said, and which keys there are.
fn last_line(queue: &Queue) -> Line<'_> {
    let asked = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    match &queue.asking {
        Asking::Reason(reason) => {
            Line::styled(format!("Why? {reason}_  (Enter denies, Esc does not)"), asked)
        }
        Asking::Confirmation(answer) => {
            let verb = if answer.denied.is_some() { "deny" } else { "approve" };
            Line::styled(format!("LIVE: {verb} {}? y does, any other key does not", answer.review), asked)
        }
        Asking::Nothing if queue.message.is_empty() => Line::raw(KEYS),
        Asking::Nothing => Line::raw(crate::output::printable(&queue.message)),
    }
}

const KEYS: &str = "a approve  d deny  j/k choose  r look again  q end";
