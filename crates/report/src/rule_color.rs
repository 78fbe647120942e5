//! Which colour a rule has: one on the whole page, in every picture and beside its name.

use std::collections::HashMap;

use rotproof_plot::{Color, LINE_COLORS};

use crate::page::Timeline;

/// Rules with a row and a colour of their own; the others share one.
pub(crate) const RULES_MAX: usize = 12;

/// What all rules beyond [`RULES_MAX`] have in common.
const SHARED: Color = LINE_COLORS[6];

/// The order in which rules take the colours of lines: those that most charts draw their lines with come last.
const ORDER: [usize; 6] = [5, 4, 3, 2, 1, 0];

/// The colour of each rule that did something.
pub(crate) struct RuleColors<'a> {
    /// In the order in which they began.
    pub(crate) rules: Vec<&'a str>,
    colors: HashMap<&'a str, Color>,
}

impl<'a> RuleColors<'a> {
    /// Of the rules on `timeline`.
    pub(crate) fn of(timeline: &'a Timeline) -> Self {
        let mut begun: HashMap<&str, f64> = HashMap::new();
        let windows = timeline.windows.iter().map(|window| (window.name.as_str(), window.from));
        for (name, at) in windows.chain(timeline.hits.iter().map(|hit| (hit.rule.as_str(), hit.at))) {
            let first = begun.entry(name).or_insert(at);
            *first = first.min(at);
        }
        let mut begun: Vec<(&str, f64)> = begun.into_iter().collect();
        begun.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(b.0)));
        let rules: Vec<&str> = begun.into_iter().map(|(name, _)| name).collect();
        let own = Self::own_rows(rules.len());
        let colored = rules.iter().enumerate().map(|(number, rule)| {
            let own = (number < own).then(|| LINE_COLORS[ORDER[number % ORDER.len()]]);
            (*rule, own.unwrap_or(SHARED))
        });
        Self { colors: colored.collect(), rules }
    }

    /// How many of so many rules have a row of their own.
    pub(crate) fn own_rows(rules: usize) -> usize {
        if rules > RULES_MAX { RULES_MAX - 1 } else { rules }
    }

    /// The colour of a rule, if it did anything.
    pub(crate) fn get(&self, rule: &str) -> Option<Color> {
        self.colors.get(rule).copied()
    }

    /// The colour of a rule, or what those have that did nothing.
    pub(crate) fn color(&self, rule: &str) -> Color {
        self.get(rule).unwrap_or(SHARED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{ShownInjection, Span};

    #[test]
    fn rules_have_colours_in_the_order_in_which_they_begin_and_those_beyond_share_one() {
        let hit = |number: usize| ShownInjection {
            at: number as f64,
            rule: format!("r{number:02}"),
            what: String::new(),
            count: 1,
        };
        let window = Span { name: "r19".into(), from: -1.0, to: 30.0 };
        let timeline =
            Timeline { hits: (0..20).map(hit).collect(), windows: vec![window], ..Timeline::default() };
        let colors = RuleColors::of(&timeline);
        assert_eq!((colors.rules[0], colors.rules[1]), ("r19", "r00"), "a window begins before its hits");
        assert_ne!(colors.color("r19"), colors.color("r00"));
        assert_eq!(colors.color("r17"), colors.color("r18"));
        assert_eq!((colors.get("nobody"), colors.color("nobody")), (None, SHARED));
    }
}
