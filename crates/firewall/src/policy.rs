//! Both rule forms together.

use crate::permissions::PermissionTable;
use crate::{Around, Classifier, Content, Counters, DecidedBy, Fields, Verdict};

/// A permission table, if there is one, and a rule list: a packet passes if both let it pass. The table is asked first.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The permission table.
    pub permissions: Option<PermissionTable>,
    /// The rule list.
    pub rules: Classifier,
}

impl Policy {
    /// Judges a frame, and counts it. The permission table judges the packets that rules judge: IP packets, and neighbor discovery if
    /// the rule list says so.
    ///
    /// **Cost**: two searches in hash tables, and that of [`Classifier::judge`]. No allocation.
    pub fn judge(&self, fields: &Fields, around: &Around<'_>, counters: &mut Counters) -> (Verdict, DecidedBy) {
        let is_judged = match fields.content {
            Content::Ip => true,
            Content::Neighbors => self.rules.list().neighbors_by_rules,
            Content::NonIp | Content::Malformed => false,
        };
        let table = self.permissions.as_ref().filter(|_| is_judged);
        match table.and_then(|table| table.denies(fields)) {
            Some(by) => {
                counters.decide(Verdict::Drop, by, around.frame.wire_len);
                (Verdict::Drop, by)
            }
            None => self.rules.judge(fields, around, counters),
        }
    }
}
