//! The run as rows of time: its phases, the windows and hits of each rule, its events.

use rotproof_plot::{Anchor, Color, Item, Scene, width_of};

use crate::chart::{
    AXIS, HIT, LEFT, OVER_TIME, RIGHT, TEXT, WIDTH, WINDOW, at_pixel, group, line, text, time_axis,
};
use crate::mark::columns;
use crate::page::{Span, Timeline};
use crate::rule_color::RuleColors;
use crate::unit::seconds;

const ROW: f64 = 24.0;
const BAR: f64 = 16.0;

/// The rows.
pub(crate) fn scene(timeline: &Timeline) -> Scene {
    let colors = RuleColors::of(timeline);
    let rules = &colors.rules;
    let own = RuleColors::own_rows(rules.len());
    let rows = 1 + own + usize::from(rules.len() > own) + usize::from(!timeline.marks.is_empty());
    let bottom = 6.0 + ROW * rows as f64;
    let height = bottom + 26.0;
    let mut items = vec![Item::Area { place: [0.0, 0.0, WIDTH, height], color: Color::PAPER }];
    let mut over_time = Vec::new();
    let mut row = Row { top: 6.0, timeline, names: &mut items, items: &mut over_time };
    row.phases();
    for rule in &rules[..own] {
        row.rule(rule, colors.color(rule), |name| name == *rule);
    }
    if rules.len() > own {
        let others = &rules[own..];
        let name = format!("{} more rules", others.len());
        row.rule(&name, colors.color(others[0]), |name| others.contains(&name));
    }
    row.events();
    items.extend(group(OVER_TIME, over_time));
    items.push(line(vec![(LEFT, bottom), (WIDTH - RIGHT, bottom)], Color::INK, 1.0));
    items.extend(time_axis(timeline, bottom));
    Scene { width: WIDTH, height, items }
}

/// Where the next row goes.
struct Row<'a> {
    top: f64,
    timeline: &'a Timeline,
    /// What stands beside the rows.
    names: &'a mut Vec<Item>,
    /// What lies in them.
    items: &'a mut Vec<Item>,
}

impl Row<'_> {
    fn name(&mut self, name: &str) {
        let y = self.top + ROW / 2.0 + 0.35 * TEXT;
        self.names.push(text((LEFT - 7.0, y), &shortened(name, LEFT - 12.0), Anchor::End, false));
    }

    fn bar(&mut self, span: &Span, color: Color, kind: &'static str, label: Option<&str>) {
        let [from, to] = [span.from, span.to].map(|at| LEFT + at_pixel(at, self.timeline));
        let top = self.top + (ROW - BAR) / 2.0;
        let width = (to - from).max(1.0);
        let mut items = vec![Item::Area { place: [from, top, width, BAR], color }];
        if let Some(label) = label.filter(|label| width_of(label) * TEXT < width - 8.0) {
            let at = (from + 4.0, top + BAR / 2.0 + 0.35 * TEXT);
            items.push(text(at, label, Anchor::Start, false));
        }
        let whole = self.timeline.seconds;
        let title = format!("{}: {} to {}", span.name, seconds(span.from, whole), seconds(span.to, whole));
        self.items.push(Item::Group { kind, title, items });
    }

    fn phases(&mut self) {
        self.name(self.timeline.phases_are.unwrap_or("phase"));
        for (number, phase) in self.timeline.phases.iter().enumerate() {
            let color = if number % 2 == 0 { Color::FAINT } else { Color(0xee, 0xee, 0xee) };
            self.bar(phase, color, "phase", Some(&phase.name));
        }
        self.top += ROW;
    }

    fn rule(&mut self, name: &str, color: Color, belongs: impl Fn(&str) -> bool) {
        self.name(name);
        for window in self.timeline.windows.iter().filter(|window| belongs(&window.name)) {
            self.bar(window, WINDOW, "window", None);
        }
        let hits = self.timeline.hits.iter().filter(|hit| belongs(&hit.rule));
        for column in columns(hits, self.timeline, AXIS) {
            let x = LEFT + column.x;
            let (top, bottom) = (self.top + (ROW - BAR) / 2.0, self.top + (ROW + BAR) / 2.0);
            let tick = line(vec![(x, top), (x, bottom)], color, 1.6);
            self.items.push(Item::Group { kind: "rule-hit", title: column.title, items: vec![tick] });
        }
        self.top += ROW;
    }

    fn events(&mut self) {
        if self.timeline.marks.is_empty() {
            return;
        }
        self.name("events");
        let mut free_from = 0.0;
        for mark in &self.timeline.marks {
            let x = LEFT + at_pixel(mark.at, self.timeline);
            let mut items = vec![line(vec![(x, self.top + 4.0), (x, self.top + ROW)], HIT, 1.4)];
            let width = 5.0 + width_of(&mark.name) * TEXT;
            let y = self.top + ROW - 8.0;
            if x > free_from && x + width < WIDTH {
                items.push(text((x + 4.0, y), &mark.name, Anchor::Start, false));
                free_from = x + width + 8.0;
            } else if x + width >= WIDTH && x - width > free_from {
                items.push(text((x - 4.0, y), &mark.name, Anchor::End, false));
                free_from = x + 8.0;
            }
            let title = format!("{} at {}", mark.name, seconds(mark.at, self.timeline.seconds));
            self.items.push(Item::Group { kind: "event", title, items });
        }
        self.top += ROW;
    }
}

/// A name that is no wider than `room` pixels.
pub(crate) fn shortened(name: &str, room: f64) -> String {
    if width_of(name) * TEXT <= room {
        return name.to_owned();
    }
    let mut kept = String::new();
    for c in name.chars() {
        if width_of(&format!("{kept}{c}..")) * TEXT > room {
            break;
        }
        kept.push(c);
    }
    kept + ".."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Mark, ShownInjection};
    use crate::rule_color::RULES_MAX;

    fn timeline(rules: usize) -> Timeline {
        let hit = |number: usize| ShownInjection {
            at: number as f64,
            rule: format!("rule-{number}"),
            what: "zeros".into(),
            count: 1,
        };
        Timeline {
            seconds: rules as f64,
            phases: vec![Span { name: "run".into(), from: 0.0, to: rules as f64 }],
            hits: (0..rules).map(hit).collect(),
            marks: vec![Mark { at: 1.0, name: "interrupted".into() }],
            ..Timeline::default()
        }
    }

    fn over_time(scene: &Scene) -> impl Iterator<Item = &Item> {
        scene.items.iter().flat_map(|item| match item {
            Item::Group { kind: OVER_TIME, items, .. } => &items[..],
            item => std::slice::from_ref(item),
        })
    }

    fn marks(scene: &Scene, wanted: &str) -> usize {
        over_time(scene).filter(|item| matches!(item, Item::Group { kind, .. } if *kind == wanted)).count()
    }

    #[test]
    fn every_rule_has_its_marks_however_many_rules_there_are() {
        for rules in [1, 5, RULES_MAX, RULES_MAX + 1, 100] {
            let scene = scene(&timeline(rules));
            assert_eq!(marks(&scene, "rule-hit"), rules);
            assert_eq!((marks(&scene, "phase"), marks(&scene, "event")), (1, 1));
            let rows = rules.min(RULES_MAX) as f64 + 2.0;
            assert_eq!(scene.height, 6.0 + rows * ROW + 26.0);
        }
    }

    #[test]
    fn an_event_has_its_name_beside_it_also_at_the_end() {
        for at in [0.0, 0.5, 1.0] {
            let marks = vec![Mark { at, name: "steady".into() }];
            let scene = scene(&Timeline { marks, ..timeline(1) });
            let named = over_time(&scene).filter(
                |item| matches!(item, Item::Group { kind, items, .. } if *kind == "event" && items.len() == 2),
            );
            assert_eq!(named.count(), 1, "{at}");
        }
    }

    #[test]
    fn a_long_name_is_cut_so_that_it_fits() {
        let short = shortened("latent_sector_errors-17 on the second half", 100.0);
        assert!(short.ends_with("..") && width_of(&short) * TEXT <= 100.0, "{short}");
        assert_eq!(shortened("rot", 100.0), "rot");
    }
}
