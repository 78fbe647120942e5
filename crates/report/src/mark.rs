//! Many marks in little room: those that would lie over each other become one that says how many it stands for.

use crate::page::{ShownInjection, Timeline};
use crate::unit::seconds;

/// Hits that fall on the same pixel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// Pixels from the left end of the axis.
    pub(crate) x: f64,
    /// What there is to say.
    pub(crate) title: String,
    pub(crate) hits: u64,
    /// The rule whose hits they are; none if they are of several.
    pub(crate) rule: Option<String>,
}

/// The marks of `hits`, in order of time, on an axis that is `width` pixels long and as many seconds as `timeline`.
pub(crate) fn columns<'a>(
    hits: impl Iterator<Item = &'a ShownInjection>,
    timeline: &Timeline,
    width: f64,
) -> Vec<Column> {
    let span = timeline.seconds.max(f64::MIN_POSITIVE);
    let mut columns: Vec<(u64, f64, f64, &ShownInjection, u64, bool)> = Vec::new();
    for hit in hits {
        let pixel = (hit.at / span * width).clamp(0.0, width).round() as u64;
        match columns.last_mut() {
            Some((last, _, until, first, count, is_mixed)) if *last == pixel => {
                *until = hit.at;
                *count += hit.count;
                *is_mixed |= first.rule != hit.rule;
            }
            _ => columns.push((pixel, hit.at, hit.at, hit, hit.count, false)),
        }
    }
    columns
        .into_iter()
        .map(|(pixel, from, until, first, hits, is_mixed)| Column {
            x: pixel as f64,
            title: if hits == 1 {
                format!("{}: {} at {}", first.rule, first.what, seconds(from, span))
            } else {
                format!(
                    "{}: {hits} injections from {} to {}",
                    if is_mixed { "several rules" } else { &first.rule },
                    seconds(from, span),
                    seconds(until, span)
                )
            },
            hits,
            rule: (!is_mixed).then(|| first.rule.clone()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hit_is_lost_when_several_share_a_pixel() {
        let hit = |at| ShownInjection { at, rule: "rot".into(), what: "bit_flip at 4096".into(), count: 1 };
        let hits: Vec<ShownInjection> = [0.0, 0.001, 0.002, 5.0, 10.0].map(hit).into();
        let timeline = Timeline { seconds: 10.0, ..Timeline::default() };
        let found = columns(hits.iter(), &timeline, 100.0);
        assert_eq!(found.iter().map(|column| column.hits).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!(found.iter().map(|column| column.x).collect::<Vec<_>>(), [0.0, 50.0, 100.0]);
        assert_eq!(found[0].title, "rot: 3 injections from 0.0 s to 0.0 s");
        assert_eq!(found[1].title, "rot: bit_flip at 4096 at 5.0 s");
        assert!(found.iter().all(|column| column.rule.as_deref() == Some("rot")));
        let two = [
            ShownInjection { at: 5.0, rule: "slow".into(), what: "delay".into(), count: 1 },
            hits[3].clone(),
        ];
        let found = columns(two.iter(), &timeline, 100.0);
        assert_eq!((found[0].rule.as_deref(), found[0].hits), (None, 2), "of one rule nobody can say it is");
        assert!(found[0].title.starts_with("several rules: 2 injections"), "{}", found[0].title);
        let many = [ShownInjection { count: 40, ..hit(1.0) }, ShownInjection { count: 2, ..hit(1.001) }];
        let found = columns(many.iter(), &timeline, 100.0);
        assert_eq!((found.len(), found[0].hits), (1, 42));
    }
}
