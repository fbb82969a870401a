//! Arguments on the form of an answer.

use super::*;
use weir_messages::rows::Form;

/// Form and columns of an answer.
#[derive(Args, Clone, Debug, Default)]
pub struct FormatArgs {
    /// Print the answer in this form
    #[arg(help_heading = ANSWER, long, value_name = "FORM")]
    pub format: Option<FormatArg>,
    /// Print these columns, a list with commas.
    ///
    /// weir help columns lists them. Without --format they are a table.
    #[arg(help_heading = ANSWER, long, value_name = "LIST")]
    pub columns: Option<String>,
    /// Print JSON, as --format json.
    ///
    /// There is an object a line; the last line has the totals.
    #[arg(help_heading = ANSWER, long, conflicts_with = "format")]
    pub json: bool,
}

impl FormatArgs {
    /// Requested form.
    pub fn form(&self) -> Option<Form> {
        match self.format {
            _ if self.json => Some(Form::Json),
            Some(FormatArg::Table) => Some(Form::Table),
            Some(FormatArg::Json) => Some(Form::Json),
            Some(FormatArg::Csv) => Some(Form::Csv),
            Some(FormatArg::Tsv) => Some(Form::Tsv),
            None => self.columns.as_ref().map(|_| Form::Table),
        }
    }

    /// Whether the answer is JSON.
    pub fn is_json(&self) -> bool {
        self.form() == Some(Form::Json)
    }
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Columns for people
    Table,
    /// Objects, one a line
    Json,
    /// Comma-separated values with a heading (RFC 4180)
    Csv,
    /// Tab-separated values with a heading
    Tsv,
}
