//! "Did you mean": the known word nearest to an unknown word.

/// The candidate that is nearest to `word`, if one is near: at most a third of its letters are different, or it begins or
/// ends with the word. Of candidates that begin with the word, the shortest is nearest; of equal candidates, the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let letters = lower.chars().count();
    if letters < 2 {
        return None;
    }
    let mut best: Option<((usize, usize), &str)> = None;
    for candidate in candidates {
        let other = candidate.to_lowercase();
        let letters_changed = distance(&lower, &other);
        let far = match () {
            () if letters >= 3 && (other.starts_with(&lower) || lower.starts_with(&other)) => 1,
            // The last part of a name: share of bytes_share.
            () if letters >= 3 && other.ends_with(&format!("_{lower}")) => 1,
            () => letters_changed,
        };
        let longest = letters.max(other.chars().count());
        let is_near = far <= longest.div_ceil(3).min(3) && far < longest;
        let far = (far, letters_changed);
        if is_near && best.is_none_or(|(least, _)| far < least) {
            best = Some((far, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The words ` (did you mean X?)`, or nothing.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// Letters to change, to put in, to leave out, or to exchange with their neighbour, to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_if_one_is_near() {
        let keys = [
            "5tuple",
            "conversation",
            "pair",
            "src",
            "dst",
            "sport",
            "dport",
            "proto",
        ];
        for (word, near) in [
            ("source", None),
            ("srcc", Some("src")),
            ("scr", Some("src")),
            ("DST", Some("dst")),
            ("conv", Some("conversation")),
            ("porto", Some("proto")),
            ("5tupel", Some("5tuple")),
            ("x", None),
            ("", None),
            ("zzzz", None),
        ] {
            assert_eq!(nearest(word, keys), near, "{word}");
        }
        assert_eq!(nearest("--topp", ["--to", "--top"]), Some("--top"));
        assert_eq!(did_you_mean("tpc", ["tcp", "udp"]), " (did you mean tcp?)");
        assert_eq!(did_you_mean("zzz", ["tcp", "udp"]), "");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("tpc", "tcp"), 1);
    }
}
