//! Files that keys ask for: a question is shown before they are written.

use crate::rows::Id;
use crate::ui::{Effect, Only, Ui};
use crate::{Key, text::clean};
use std::net::IpAddr;

/// Files that a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// The packets of the chosen subject.
    Packets {
        /// Whether they are of all steps that the view keeps, up to the step that is shown; else of this step.
        all: bool,
    },
    /// An incident bundle: the screen as text, the rows as JSON, and packets.
    Bundle {
        /// Whether packets keep their payload.
        payload: bool,
    },
}

impl Save {
    /// The same with its option changed.
    fn changed(self) -> Self {
        match self {
            Self::Packets { all } => Self::Packets { all: !all },
            Self::Bundle { payload } => Self::Bundle { payload: !payload },
        }
    }

    /// Words for the line of keys about the key `t`.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Packets { all: false } => "t all kept until then",
            Self::Packets { all: true } => "t this step only",
            Self::Bundle { payload: false } => "t with payload",
            Self::Bundle { payload: true } => "t without payload",
        }
    }
}

/// Subject whose packets are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All packets.
    All,
    /// A row.
    Row(Id),
    /// A host.
    Host(IpAddr),
    /// A service: port and protocol.
    Service(u16, u8),
    /// The finding of this number.
    Finding(u64),
}

/// A question before files are written.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub save: Save,
    /// Two lines: the files, and their contents.
    pub words: [String; 2],
}

impl Ui {
    /// The chosen row or finding; without one, the opened row.
    pub fn subject(&self) -> Subject {
        if let Some(number) = self.finding {
            return Subject::Finding(number);
        }
        if let Some(chosen) = &self.chosen {
            return Subject::Row(chosen.id.clone());
        }
        match self.crumbs.last().and_then(|crumb| crumb.only.as_ref()) {
            Some(Only::Host(host)) => Subject::Host(*host),
            Some(Only::Service(port, proto)) => Subject::Service(*port, *proto),
            None => Subject::All,
        }
    }

    /// Asks whether these files shall be written, in two lines of the front end, the files and their contents: the answer to [`Effect::Offer`].
    pub fn offer(&mut self, save: Save, words: &[String; 2]) {
        let words = words.each_ref().map(|words| clean(words, self.look.ascii));
        self.question = Some(Question { save, words });
    }

    /// Takes a key while the question is shown.
    pub(crate) fn answer_question(&mut self, key: Key) -> Effect {
        let Some(question) = &self.question else {
            return Effect::Draw;
        };
        let save = question.save;
        match key {
            Key::Enter => {
                self.question = None;
                Effect::Write
            }
            Key::Esc | Key::Char('q') => {
                self.question = None;
                self.say("nothing is written");
                Effect::Draw
            }
            Key::Char('t') => {
                self.question = None;
                Effect::Offer(save.changed())
            }
            _ => Effect::Draw,
        }
    }
}
