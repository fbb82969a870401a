//! State of the keys: what is chosen, typed and opened.

use crate::help;
use crate::keys::Key;
use crate::look::Look;
use crate::rows::{self, Id, Row};
use crate::save::{Question, Save};
use crate::text::clean;
use ratatui_core::layout::Rect;
use std::collections::HashMap;
use std::net::IpAddr;
use weir_measure::KeyKind;
use weir_packet::flow::FlowKey;
use weir_view::{Finding, Snapshot, Span, State};

/// A tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// Hosts, with sent and received bytes.
    Hosts,
    /// Conversations of two ends.
    Conversations,
    /// Services.
    Services,
    /// DNS servers and names.
    Dns,
    /// Health of TCP conversations.
    Tcp,
    /// Another key, chosen while the screen runs.
    Key,
}

impl Tab {
    /// All tabs in their order.
    pub const ALL: [Self; 6] = [
        Self::Hosts,
        Self::Conversations,
        Self::Services,
        Self::Dns,
        Self::Tcp,
        Self::Key,
    ];

    /// Title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Conversations => "conversations",
            Self::Services => "services",
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Key => "key",
        }
    }

    /// Kind of key that the tab shows; `None` without one, or if it is chosen while the screen runs.
    pub fn kind(self) -> Option<KeyKind> {
        match self {
            Self::Hosts => Some(KeyKind::HOST),
            Self::Conversations => Some(KeyKind::Conversation),
            Self::Services => Some(KeyKind::Service),
            Self::Dns | Self::Tcp | Self::Key => None,
        }
    }

    /// Kinds of key that all screens count.
    pub fn kinds() -> impl Iterator<Item = KeyKind> {
        Self::ALL.into_iter().filter_map(Self::kind)
    }

    /// Names of the orders, the first is the usual one.
    pub fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Hosts | Self::Conversations | Self::Services | Self::Key => {
                &["rate", "sent", "received", "packets", "newest"]
            }
            Self::Dns => &["queries", "mean time", "failures", "missing answers"],
            Self::Tcp => &["segments sent again", "RTT", "resets", "segments"],
        }
    }
}

/// A choice of rows by the row that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    Host(IpAddr),
    Service(u16, u8),
}

impl Only {
    /// Whether a row belongs to it.
    pub fn passes(&self, id: &Id) -> bool {
        let (Id::Key(_, key) | Id::Tcp(key)) = id else {
            return match (self, id) {
                (Self::Host(host), Id::Server(server)) => host == server,
                _ => true,
            };
        };
        match self {
            Self::Host(host) => [key.source(), key.destination()].contains(&Some(*host)),
            Self::Service(port, proto) => {
                let ports = key.ports();
                key.proto == *proto && ports.is_some_and(|(a, b)| [a, b].contains(port))
            }
        }
    }
}

/// A row that was opened, and what was before.
#[derive(Clone, Debug)]
pub(crate) struct Crumb {
    /// Name of the row.
    pub words: String,
    pub only: Option<Only>,
    before: (Tab, Option<Chosen>),
    /// The time that was shown before, if opening the row has changed it.
    time: Option<Option<i64>>,
}

/// A chosen row and its place in the table.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub id: Id,
    pub name: String,
    pub place: usize,
}

/// Purpose of a typed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Rows,
    Capture,
    Key,
}

/// A line that is typed.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub asked: Asked,
    pub text: String,
    /// Why the text cannot be taken.
    pub problem: Option<String>,
    before: String,
}

/// Longest line that can be typed, characters.
const LONGEST: usize = 400;

/// Work for the front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Draw again.
    Draw,
    /// Draw all cells again.
    Redraw,
    /// End.
    Quit,
    /// Give the terminal back until the process goes on.
    Suspend,
    /// Say whether this expression of the capture is right, by [`Ui::answer`].
    CheckFilter(String),
    /// Capture by this expression.
    SetFilter(String),
    /// Count by this key in addition; `None`: by no further key.
    SetKey(Option<KeyKind>),
    /// Ask whether these files shall be written, by [`Ui::offer`].
    Offer(Save),
    /// Write the files of the last offer.
    Write,
}

/// State of the keys.
#[derive(Clone, Debug)]
pub struct Ui {
    pub(crate) tab: Tab,
    orders: [usize; Tab::ALL.len()],
    pub(crate) chosen: Option<Chosen>,
    /// Number of the chosen finding.
    pub(crate) finding: Option<u64>,
    pub(crate) top: usize,
    /// Text of the rows to show; with `!`, of the rows to leave out.
    pub(crate) only_rows: String,
    pub(crate) input: Option<Input>,
    pub(crate) question: Option<Question>,
    pub(crate) crumbs: Vec<Crumb>,
    /// Page of the help that is shown, and the number of pages.
    pub(crate) help: Option<usize>,
    help_pages: usize,
    pub(crate) has_detail: bool,
    span: Span,
    at: Option<i64>,
    /// Direction of the last key if it moved in time: -1, 1, else 0.
    heads: i64,
    /// The further key that is counted.
    further: Option<KeyKind>,
    /// Whether steps follow after the last read step.
    has_more: bool,
    /// Expression of the capture.
    filter: String,
    /// Names of addresses, and whether they are shown.
    names: HashMap<IpAddr, String>,
    shows_names: bool,
    /// Answer to the last key.
    pub(crate) note: Option<String>,
    /// Rows of the last picture, ordered.
    rows: Vec<Row>,
    /// Rows that fit into the last picture.
    room: usize,
    pub(crate) look: Look,
}

impl Ui {
    /// A screen that shows the hosts of the last second.
    pub fn new(look: Look) -> Self {
        Self {
            tab: Tab::Hosts,
            orders: [0; Tab::ALL.len()],
            chosen: None,
            finding: None,
            top: 0,
            only_rows: String::new(),
            input: None,
            question: None,
            crumbs: Vec::new(),
            help: None,
            help_pages: 1,
            has_detail: false,
            span: Span::Second,
            at: None,
            heads: 0,
            further: None,
            has_more: false,
            filter: String::new(),
            names: HashMap::new(),
            shows_names: true,
            note: None,
            rows: Vec::new(),
            room: 10,
            look,
        }
    }

    /// Counts by a further key from the begin on, and orders the rows of keys by the order of this name.
    pub fn begin_with(&mut self, further: Option<KeyKind>, order: Option<&str>) {
        self.further = further;
        for tab in Tab::ALL {
            let place = order.and_then(|order| tab.orders().iter().position(|it| *it == order));
            self.orders[tab as usize] = place.unwrap_or(0);
        }
    }

    /// Length of the steps that are shown, and a time in the step; `None`: the last step.
    pub fn asks(&self) -> (Span, Option<i64>) {
        (self.span, self.at)
    }

    /// Shows the step with a time, ns since 1970; `None`: the last step.
    pub fn go_to(&mut self, at: Option<i64>) {
        self.at = at;
    }

    /// Notes the size of the terminal.
    pub fn fit(&mut self, area: Rect) {
        self.help_pages = help::pages(area.height);
        self.help = self.help.map(|page| page.min(self.help_pages - 1));
    }

    /// Whether a page of the help is shown, and others follow.
    pub(crate) fn has_more_help(&self) -> bool {
        self.help.is_some_and(|page| page + 1 < self.help_pages)
    }

    /// Direction of the last key if it moved in time: -1 back, 1 forth, else 0.
    pub fn heads(&self) -> i64 {
        self.heads
    }

    /// Whether a step of the past is shown.
    pub fn is_past(&self) -> bool {
        self.at.is_some()
    }

    /// Says whether steps follow after the last read step.
    pub fn set_more(&mut self, has_more: bool) {
        self.has_more = has_more;
    }

    /// Addresses of the shown hosts, whose names are of use.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let shown = self.rows.iter().skip(self.top).take(self.room);
        shown.filter_map(|row| address_of(&row.id))
    }

    /// Takes the expression in force, which `f` offers.
    pub fn set_filter(&mut self, expression: &str) {
        expression.clone_into(&mut self.filter);
    }

    /// Takes names of addresses.
    pub fn set_names(&mut self, names: HashMap<IpAddr, String>) {
        self.names = names;
    }

    /// Says something about the last key.
    pub fn say(&mut self, words: impl Into<String>) {
        self.note = Some(words.into());
    }

    /// Takes the answer to [`Effect::CheckFilter`]: why the expression is wrong.
    pub fn answer(&mut self, problem: Option<String>) {
        if let Some(input) = &mut self.input {
            input.problem = problem;
        }
    }

    /// Orders the rows of a snapshot for the next picture, in which `room` rows fit. The chosen row keeps its place.
    pub fn arrange(&mut self, snapshot: Option<&Snapshot>, room: usize) {
        self.room = room.max(1);
        let Some(snapshot) = snapshot else {
            self.rows.clear();
            return;
        };
        let only = self.crumbs.last().and_then(|crumb| crumb.only.as_ref());
        let mut rows = rows::of((self.tab, self.kind()), snapshot, only, self.look);
        for row in rows.iter_mut().filter(|_| self.shows_names) {
            let address = address_of(&row.id);
            if let Some(name) = address.and_then(|address| self.names.get(&address)) {
                row.name = Some(clean(name, self.look.ascii));
            }
        }
        let (wanted, inverted) = match self.only_rows.strip_prefix('!') {
            Some(text) => (text.to_lowercase(), true),
            None => (self.only_rows.to_lowercase(), false),
        };
        if !wanted.is_empty() {
            rows.retain(|row| row.title().to_lowercase().contains(&wanted) != inverted);
        }
        let order = self.order();
        rows.sort_by(|a, b| {
            let figures = b.ranks[order].total_cmp(&a.ranks[order]);
            figures.then_with(|| a.cells[0].cmp(&b.cells[0]))
        });
        if let Some(chosen) = &mut self.chosen {
            let found = rows.iter().position(|row| row.id == chosen.id);
            // A chosen row that has no figures now stays too.
            let row = match found {
                Some(place) => rows.remove(place),
                None => silent(self.tab, chosen),
            };
            chosen.place = chosen.place.min(rows.len());
            rows.insert(chosen.place, row);
        }
        self.rows = rows;
        self.scroll();
    }

    /// Keeps the chosen row in sight.
    fn scroll(&mut self) {
        self.top = self.top.min(self.rows.len().saturating_sub(self.room));
        if let Some(chosen) = &self.chosen {
            let least = (chosen.place + 1).saturating_sub(self.room);
            self.top = self.top.clamp(least, chosen.place.max(least));
        }
    }

    /// Rows of the next picture, all of them.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Kind of key of the tab.
    pub(crate) fn kind(&self) -> Option<KeyKind> {
        match self.tab {
            Tab::Key => self.further,
            tab => tab.kind(),
        }
    }

    /// The further key that is counted.
    pub fn further(&self) -> Option<KeyKind> {
        self.further
    }

    /// Takes the further key that is counted, and stays where it is.
    pub fn note_further(&mut self, further: Option<KeyKind>) {
        self.further = further;
    }

    /// Takes the answer to [`Effect::SetKey`]: the further key that is counted now.
    pub fn set_further(&mut self, further: Option<KeyKind>) {
        self.further = further;
        self.set_tab(match further {
            Some(_) => Tab::Key,
            None => Tab::Hosts,
        });
    }

    /// Place of the order of the tab.
    fn order(&self) -> usize {
        self.orders[self.tab as usize]
    }

    /// Name of the order.
    pub(crate) fn order_name(&self) -> &'static str {
        self.tab.orders()[self.order()]
    }

    /// The chosen row, if it is opened.
    pub(crate) fn opened(&self) -> Option<&Chosen> {
        self.chosen.as_ref().filter(|_| self.has_detail)
    }

    /// Takes a key. `snapshot` is the one of the last picture.
    pub fn press(&mut self, key: Key, snapshot: Option<&Snapshot>) -> Effect {
        self.note = None;
        self.heads = 0;
        match key {
            Key::Interrupt => return Effect::Quit,
            Key::Suspend => return Effect::Suspend,
            Key::Redraw => return Effect::Redraw,
            _ => {}
        }
        if self.input.is_some() {
            return self.type_key(key);
        }
        if self.question.is_some() {
            return self.answer_question(key);
        }
        if let Some(page) = self.help {
            let is_next = matches!(key, Key::Char('?' | ' ') | Key::Down | Key::PageDown);
            self.help = (is_next && self.has_more_help()).then_some(page + 1);
            return match key {
                Key::Char('q') => Effect::Quit,
                _ => Effect::Draw,
            };
        }
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char('?') => self.help = Some(0),
            Key::Char('/') => self.ask(Asked::Rows, self.only_rows.clone()),
            Key::Char('f') => self.ask(Asked::Capture, self.filter.clone()),
            Key::Char('k') => self.ask(Asked::Key, String::new()),
            Key::Char('w') => {
                let all = self.at.is_none();
                return Effect::Offer(Save::Packets { all });
            }
            Key::Char('B') => return Effect::Offer(Save::Bundle { payload: false }),
            Key::Char('s') => {
                let count = self.tab.orders().len();
                let order = &mut self.orders[self.tab as usize];
                *order = (*order + 1) % count;
                self.top = 0;
            }
            Key::Char('p' | ' ') => {
                self.at = match self.at {
                    Some(_) => None,
                    None => snapshot.map(|snapshot| snapshot.from_ns),
                }
            }
            Key::Char('t') => self.change_span(),
            Key::Char('n') => {
                self.shows_names = !self.shows_names;
                self.say(match self.shows_names {
                    true => "hosts have names, as far as DNS and TLS in the packets tell them",
                    false => "hosts have no names",
                });
            }
            Key::Char('<') | Key::Left => self.step(snapshot, -1),
            Key::Char('>') | Key::Right => self.step(snapshot, 1),
            Key::Char('.') => self.at = None,
            Key::Char(digit @ '1'..='6') => self.choose_tab(digit as usize - '1' as usize),
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(Tab::ALL.len() - 1),
            Key::Down => self.move_by(1, snapshot),
            Key::Up => self.move_by(-1, snapshot),
            Key::PageDown => self.move_by(self.room as isize, snapshot),
            Key::PageUp => self.move_by(-(self.room as isize), snapshot),
            Key::Home => self.move_by(isize::MIN / 2, snapshot),
            Key::End => self.move_by(isize::MAX / 2, snapshot),
            Key::Enter => self.open(snapshot),
            Key::Esc | Key::Backspace => self.close(),
            _ => {}
        }
        Effect::Draw
    }

    /// Begins a line with a text.
    fn ask(&mut self, asked: Asked, text: String) {
        self.input = Some(Input {
            asked,
            before: text.clone(),
            text,
            problem: None,
        });
    }

    fn type_key(&mut self, key: Key) -> Effect {
        let Some(input) = &mut self.input else {
            return Effect::Draw;
        };
        match key {
            Key::Char(letter) if input.text.chars().count() < LONGEST => input.text.push(letter),
            Key::Backspace => drop(input.text.pop()),
            Key::Clear => input.text.clear(),
            Key::Esc => {
                if input.asked == Asked::Rows {
                    self.only_rows = std::mem::take(&mut input.before);
                }
                self.input = None;
                return Effect::Draw;
            }
            Key::Enter => return self.entered(),
            _ => return Effect::Draw,
        }
        let text = input.text.clone();
        match input.asked {
            Asked::Rows => {
                self.only_rows = text;
                (self.chosen, self.top) = (None, 0);
                Effect::Draw
            }
            Asked::Capture => Effect::CheckFilter(text),
            Asked::Key => {
                let wrong = match text.trim() {
                    "" => None,
                    key => key.parse::<KeyKind>().err(),
                };
                input.problem = wrong.map(|error| error.to_string());
                Effect::Draw
            }
        }
    }

    fn entered(&mut self) -> Effect {
        let Some(input) = &self.input else {
            return Effect::Draw;
        };
        if input.problem.is_some() {
            return Effect::Draw;
        }
        let (asked, text) = (input.asked, input.text.trim().to_owned());
        let effect = match asked {
            Asked::Rows => Effect::Draw,
            Asked::Capture => Effect::SetFilter(text),
            Asked::Key => match text.parse::<KeyKind>() {
                Ok(KeyKind::Name) => {
                    self.set_tab(Tab::Hosts);
                    self.say("hosts have their names here");
                    Effect::Draw
                }
                Ok(kind) => match Tab::ALL.into_iter().find(|tab| tab.kind() == Some(kind)) {
                    Some(tab) => {
                        self.set_tab(tab);
                        Effect::Draw
                    }
                    None => Effect::SetKey(Some(kind)),
                },
                Err(_) if text.is_empty() => Effect::SetKey(None),
                Err(error) => {
                    let problem = Some(error.to_string());
                    self.answer(problem);
                    return Effect::Draw;
                }
            },
        };
        self.input = None;
        effect
    }

    fn change_span(&mut self) {
        self.span = match self.span {
            Span::Second => Span::TenSeconds,
            Span::TenSeconds => Span::Minute,
            Span::Minute => Span::Second,
        };
    }

    /// Moves in time. The step of the last window is left for a pause by going back.
    fn step(&mut self, snapshot: Option<&Snapshot>, by: i64) {
        let length = self.span.seconds() * 1_000_000_000;
        let Some(snapshot) = snapshot else {
            self.heads = by;
            self.at = self
                .at
                .map(|at| at.saturating_add(by.saturating_mul(length)));
            return;
        };
        if by > 0 && snapshot.is_last && !self.has_more {
            self.at = None;
            return;
        }
        let [before, after] = snapshot.neighbours;
        self.heads = by;
        self.at = Some(match by {
            ..0 => before.unwrap_or(snapshot.from_ns.saturating_sub(length)),
            _ => after.unwrap_or(snapshot.to_ns),
        });
    }

    fn choose_tab(&mut self, place: usize) {
        let tab = Tab::ALL[place];
        if tab == Tab::Key && self.further.is_none() {
            self.say("no further key is counted: k chooses one");
            return;
        }
        self.crumbs.clear();
        self.set_tab(tab);
    }

    fn set_tab(&mut self, tab: Tab) {
        self.tab = tab;
        (self.chosen, self.finding, self.top, self.has_detail) = (None, None, 0, false);
    }

    fn turn(&mut self, by: usize) {
        let mut place = self.tab as usize;
        loop {
            place = (place + by) % Tab::ALL.len();
            if Tab::ALL[place] != Tab::Key || self.further.is_some() {
                return self.choose_tab(place);
            }
        }
    }

    /// Moves the choice: above the first row are the findings.
    fn move_by(&mut self, by: isize, snapshot: Option<&Snapshot>) {
        if self.has_detail {
            return;
        }
        let findings: Vec<u64> = current(snapshot).map(|finding| finding.number).collect();
        let count = findings.len() as isize;
        let here = match (&self.chosen, self.finding) {
            (Some(chosen), _) => chosen.place as isize,
            (None, Some(number)) => {
                let place = findings.iter().position(|other| *other == number);
                place.unwrap_or(0) as isize - count
            }
            // The first move is to the first row, or to the finding above it.
            (None, None) => -isize::from(by > 0),
        };
        let last = self.rows.len() as isize - 1;
        let least = if by.abs() == 1 { -count } else { 0.min(last) };
        let place = here
            .saturating_add(by)
            .clamp(least.min(last), last.max(-count));
        (self.chosen, self.finding) = (None, None);
        if place >= 0 {
            self.chosen = self.rows.get(place as usize).map(|row| Chosen {
                id: row.id.clone(),
                name: row.title(),
                place: place as usize,
            });
            self.scroll();
        } else {
            let finding = findings.get((place + count).max(0) as usize);
            self.finding = finding.copied();
        }
    }

    /// Opens what is chosen: the conversations of a host or a service, else the figures of the row.
    fn open(&mut self, snapshot: Option<&Snapshot>) {
        if let Some(number) = self.finding {
            let found = current(snapshot).find(|finding| finding.number == number);
            match found.and_then(|finding| Some((finding, finding.host?))) {
                Some((finding, host)) => {
                    let words = format!("{} {host}", finding.kind.name().replace('_', " "));
                    self.enter(words, Some(Only::Host(host)), Tab::Conversations);
                    // An open finding is about the present too.
                    if finding.state != State::Begun {
                        let before = self.at.replace(finding.begin_ns);
                        let crumb = self.crumbs.last_mut();
                        crumb
                            .into_iter()
                            .for_each(|crumb| crumb.time = Some(before));
                    }
                }
                None => self.say("this finding is about the whole link"),
            }
            return;
        }
        let Some(chosen) = self.chosen.clone() else {
            self.say("choose a row with the arrows first");
            return;
        };
        let only = match (&chosen.id, self.tab) {
            (Id::Key(_, key), Tab::Hosts) => key.source().map(Only::Host),
            (Id::Key(_, key), Tab::Services) => {
                key.ports().map(|(port, _)| Only::Service(port, key.proto))
            }
            _ => None,
        };
        match only {
            Some(only) => self.enter(chosen.name, Some(only), Tab::Conversations),
            None => self.has_detail = true,
        }
    }

    fn enter(&mut self, words: String, only: Option<Only>, tab: Tab) {
        let before = (self.tab, self.chosen.take());
        self.crumbs.push(Crumb {
            words,
            only,
            before,
            time: None,
        });
        self.set_tab(tab);
    }

    /// Goes back by one.
    fn close(&mut self) {
        if self.has_detail {
            self.has_detail = false;
        } else if let Some(crumb) = self.crumbs.pop() {
            let (tab, chosen) = crumb.before;
            self.set_tab(tab);
            self.chosen = chosen;
            self.at = crumb.time.unwrap_or(self.at);
        } else if !self.only_rows.is_empty() {
            self.only_rows.clear();
        } else {
            (self.chosen, self.finding) = (None, None);
        }
    }
}

/// Findings to show, the latest first: open findings, and then ended ones.
pub(crate) fn current(snapshot: Option<&Snapshot>) -> impl Iterator<Item = &Finding> {
    let findings = snapshot.map_or(&[][..], |snapshot| &snapshot.findings);
    let (open, ended): (Vec<_>, Vec<_>) = findings
        .iter()
        .partition(|finding| finding.state == State::Begun);
    open.into_iter().rev().chain(ended)
}

/// A row without figures.
fn silent(tab: Tab, chosen: &Chosen) -> Row {
    let mut cells = vec!["-".to_owned(); crate::columns::of(tab).len()];
    chosen.name.clone_into(&mut cells[0]);
    Row {
        id: chosen.id.clone(),
        cells,
        name: None,
        ranks: vec![0.0; tab.orders().len()],
    }
}

/// Flow key of a row that has one.
pub(crate) fn flow_of(id: &Id) -> Option<&FlowKey> {
    match id {
        Id::Key(_, key) | Id::Tcp(key) => Some(key),
        Id::Server(_) | Id::Name(_) => None,
    }
}

/// Address of a row that is a host.
fn address_of(id: &Id) -> Option<IpAddr> {
    match id {
        Id::Key(kind, key) if *kind == KeyKind::HOST => key.source(),
        Id::Server(server) => Some(*server),
        _ => None,
    }
}
