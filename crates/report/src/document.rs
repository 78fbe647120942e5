//! The page as one HTML file: no network, no font, no library. Everything is there without the script.

use std::fmt::Write;

use rotproof_plot::{Color, Scene, escape, svg_element};

use crate::chart::{AXIS, LEFT, WIDTH};
use crate::page::{Chart, Fact, FailingBlock, FaultRow, Page, Row, Timeline};
use crate::rule_color::RuleColors;
use crate::{chart, histogram, ribbon, strip};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("cursor.js");

/// Points of a line that the cursor knows; more cannot be told apart.
const CURSOR_POINTS_MAX: usize = 1_000;

/// The document.
pub fn html(page: &Page) -> String {
    let mut body = Body::default();
    body.header(page);
    body.verdict(page);
    body.tried(page);
    body.faults(page);
    body.over_time(page);
    body.power_loss(page);
    body.latency(page);
    body.places(page);
    body.failing(page);
    body.performance(page);
    body.repeat(page);
    let navigation: String = body
        .sections
        .iter()
        .map(|(id, title)| format!("<li><a href=\"#{id}\">{}</a></li>", escape(title)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#verdict\">Skip to the verdict</a>\n{head}<nav aria-label=\"Sections\"><ul>{navigation}</ul></nav>\n\
         <main>\n{main}</main>\n<script type=\"application/json\" id=\"series\">{series}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        title = escape(&page.name),
        head = body.head,
        main = body.main,
        series = series(&page.timeline),
    )
}

#[derive(Default)]
struct Body {
    head: String,
    main: String,
    /// Identifier and title of what has been written.
    sections: Vec<(&'static str, &'static str)>,
}

impl Body {
    fn section(&mut self, id: &'static str, title: &'static str, content: &str) {
        self.sections.push((id, title));
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.main,
            "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>\n{content}</section>",
            escape(title)
        );
    }

    fn header(&mut self, page: &Page) {
        let badge = match page.passes {
            Some(true) => "<span class=\"badge pass\">PASS</span>",
            Some(false) => "<span class=\"badge fail\">FAIL</span>",
            None => "",
        };
        self.head = format!(
            "<header>\n<h1>{} {badge}</h1>\n<p class=\"subtitle\">{}</p>\n</header>\n",
            escape(&page.name),
            escape(&page.subtitle)
        );
    }

    fn verdict(&mut self, page: &Page) {
        let mut content = format!("<p>{}</p>\n", escape(&page.summary));
        if !page.expectations.is_empty() {
            let rows = page.expectations.iter().map(|line| {
                let (class, word) = if line.holds { ("pass", "holds") } else { ("fail", "does not hold") };
                let cells = [&line.name, &line.wanted, &line.found].map(|text| escape(text));
                format!(
                    "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
                    cells[0], cells[1], cells[2]
                )
            });
            content += &table("What was expected", &["what", "wanted", "found", ""], rows);
        }
        for note in &page.notes {
            let _ = writeln!(content, "<p class=\"note\">{}</p>", escape(note));
        }
        self.section("verdict", "Verdict", &content);
    }

    fn tried(&mut self, page: &Page) {
        let devices: String = page
            .stack
            .iter()
            .rev()
            .map(|device| {
                let (class, word) = if device.has_faults {
                    (" class=\"faulty\"", " <span class=\"tag\">faults act here</span>")
                } else {
                    ("", "")
                };
                format!(
                    "<li{class}><strong>{}</strong> {}{word}</li>",
                    escape(&device.name),
                    escape(&device.detail)
                )
            })
            .collect();
        let mut content = format!(
            "<div class=\"columns\">\n<div>\n<h3>Stack</h3>\n<ol class=\"stack\" reversed>{devices}</ol>\n</div>\n"
        );
        if !page.load.is_empty() {
            let _ = writeln!(content, "<div>\n<h3>Load</h3>\n{}</div>", facts(&page.load));
        }
        content += "</div>\n";
        self.section("tried", "What was tried", &content);
    }

    fn faults(&mut self, page: &Page) {
        if page.faults.is_empty() {
            return;
        }
        let colors = RuleColors::of(&page.timeline);
        let rows = page.faults.iter().map(|row| fault_row(row, colors.get(&row.name)));
        let heads = ["rule", "#hits", "#faults", "what became of them", "#failing blocks"];
        self.section("faults", "Faults and their fate", &table("What came of each rule", &heads, rows));
    }

    fn over_time(&mut self, page: &Page) {
        let timeline = &page.timeline;
        if !timeline.has_ribbon() && timeline.charts.is_empty() && timeline.probes.is_empty() {
            return;
        }
        let mut content = String::new();
        if timeline.has_ribbon() {
            let label = format!(
                "Phases, fault windows and injections over {:.3} seconds: {} phases, {} windows, {} injections, {} events",
                timeline.seconds,
                timeline.phases.len(),
                timeline.windows.len(),
                timeline.hits.iter().map(|hit| hit.count).sum::<u64>(),
                timeline.marks.len()
            );
            content += &figure("timeline", &ribbon::scene(timeline), &label, "");
        }
        if !page.degradation.is_empty() {
            content += &numbers("What each fault took away", "fault", &Row::DEGRADATION, &page.degradation);
        }
        if !timeline.charts.is_empty() || !timeline.probes.is_empty() {
            content += "<div class=\"cursor\" hidden>\n<label for=\"moment\">Moment</label>\n\
                        <input type=\"range\" id=\"moment\" min=\"0\" max=\"1000\" value=\"0\" step=\"1\">\n\
                        <button type=\"button\" id=\"previous\">previous injection</button>\n\
                        <button type=\"button\" id=\"next\">next injection</button>\n\
                        <button type=\"button\" id=\"closer\">zoom in</button>\n\
                        <button type=\"button\" id=\"farther\">zoom out</button>\n\
                        <button type=\"button\" id=\"whole\">whole run</button>\n\
                        <output id=\"values\" for=\"moment\" aria-live=\"polite\"></output>\n</div>\n";
        }
        for (number, of_load) in timeline.charts.iter().enumerate() {
            content += &charts_of_both_scales(of_load, timeline, number);
        }
        if !timeline.probes.is_empty() {
            content += "<h3>The machine meanwhile</h3>\n";
            for probe in &timeline.probes {
                content += &line_chart(probe, timeline);
            }
        }
        self.section("time", "Over time", &content);
    }

    fn power_loss(&mut self, page: &Page) {
        let Some(loss) = &page.power_loss else { return };
        let mut content = facts(&loss.facts);
        if loss.timeline.has_ribbon() {
            let label = format!(
                "The recording over {:.3} seconds: {} epochs, {} marks of the load, {} failing states",
                loss.timeline.seconds,
                loss.timeline.phases.len(),
                loss.timeline.marks.len(),
                loss.timeline.hits.iter().map(|hit| hit.count).sum::<u64>(),
            );
            content += &figure("recording", &ribbon::scene(&loss.timeline), &label, "");
        }
        content += &numbers("States that were looked at", "chosen", &Row::STATES, &loss.ways);
        for (title, story) in &loss.witnesses {
            // Line by line: a line is a step of the story.
            let story: Vec<String> = story.lines().map(escape).collect();
            let _ = writeln!(content, "<h3>{}</h3>\n<pre>{}</pre>", escape(title), story.join("\n"));
        }
        self.section("power-loss", "Power loss", &content);
    }

    fn latency(&mut self, page: &Page) {
        if page.latencies.is_empty() {
            return;
        }
        let label: Vec<String> = page
            .latencies
            .iter()
            .map(|histogram| {
                let total: u64 = histogram.counts.iter().map(|&(_, count)| count).sum();
                format!("{} of {total} requests", histogram.name)
            })
            .collect();
        let label = format!("Histogram of latencies: {}", label.join(", "));
        self.section(
            "latency",
            "Latency",
            &figure("histogram", &histogram::scene(&page.latencies), &label, ""),
        );
    }

    fn places(&mut self, page: &Page) {
        if page.places.is_empty() {
            return;
        }
        let rows = page.places.iter().map(|place| {
            let mut kinds: Vec<(&str, u64)> = Vec::new();
            for mark in &place.marks {
                match kinds.iter_mut().find(|(kind, _)| *kind == mark.kind) {
                    Some((_, count)) => *count += 1,
                    None => kinds.push((&mark.kind, 1)),
                }
            }
            let words: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
                escape(&place.name),
                escape(&words.join(", "))
            )
        });
        let label = "Where faults and failures lie; the table below has the numbers";
        let numbers = table("Faults and failures by place", &["place", "what lies there"], rows);
        let details = format!("<details><summary>Numbers</summary>\n{numbers}</details>\n");
        let title =
            if page.faults.is_empty() { "Where failures lie" } else { "Where faults and failures lie" };
        self.section(
            "places",
            title,
            &figure("places", &strip::scene(&page.places, &page.timeline), label, &details),
        );
    }

    fn failing(&mut self, page: &Page) {
        if page.failing.is_empty() {
            return;
        }
        let rows = page.failing.iter().map(|failing| {
            let FailingBlock { object, block, offset, what, seen, cause } = failing;
            format!(
                "<tr><th scope=\"row\">{}</th><td class=\"number\">{block}</td><td class=\"number\">{offset}</td>\
                 <td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(object),
                escape(what),
                escape(seen),
                escape(cause)
            )
        });
        let heads = ["where", "#block", "#at byte", "what it was", "first seen", "cause"];
        let mut content = table("Blocks that failed", &heads, rows);
        let more = page.failing_total.saturating_sub(page.failing.len() as u64);
        if more > 0 {
            let _ = writeln!(
                content,
                "<p class=\"note\">And {more} more: failures.jsonl and failures.parquet have all of them.</p>"
            );
        }
        self.section("failing", "Failing blocks", &format!("<div class=\"long\">{content}</div>\n"));
    }

    fn performance(&mut self, page: &Page) {
        if page.performance.is_empty() {
            return;
        }
        let rows = numbers("By phase and operation", "phase", &Row::PERFORMANCE, &page.performance);
        self.section("figures", "Figures", &rows);
    }

    fn repeat(&mut self, page: &Page) {
        let mut content = String::new();
        if !page.command.is_empty() {
            let same = match page.faults.is_empty() {
                true => "The same requests again:",
                false => "The same faults hit the same requests again:",
            };
            let _ = writeln!(content, "<p>{same}</p>\n<pre><code>{}</code></pre>", command(&page.command));
        }
        content += &facts(&page.environment);
        content += &messages(&page.kernel_messages);
        self.section("repeat", "To repeat it", &content);
    }
}

/// A command line that breaks between its words, not behind the hyphens of an option.
fn command(line: &str) -> String {
    let words = line.split(' ').map(|word| match word.starts_with('-') {
        true => format!("<span class=\"option\">{}</span>", escape(word)),
        false => escape(word).to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Messages of the kernel that are shown without being asked for.
const MESSAGES_OPEN_MAX: usize = 5;

/// What the kernel said, a line each; of many only how many there are, until they are asked for.
fn messages(messages: &[String]) -> String {
    if messages.is_empty() {
        return String::new();
    }
    let lines: String =
        messages.iter().map(|message| format!("<li><code>{}</code></li>\n", escape(message))).collect();
    let is_open = if messages.len() > MESSAGES_OPEN_MAX { "" } else { " open" };
    let count = messages.len();
    let plural = if count == 1 { "" } else { "s" };
    format!(
        "<details class=\"messages\"{is_open}><summary>{count} message{plural} of the kernel</summary>\n\
         <ol>{lines}</ol>\n</details>\n"
    )
}

/// Before the head of a column of numbers.
const NUMBERS: char = '#';

fn table(caption: &str, heads: &[&str], rows: impl Iterator<Item = String>) -> String {
    let heads: String = heads
        .iter()
        .map(|head| match (head.is_empty(), head.strip_prefix(NUMBERS)) {
            (true, _) => "<td></td>".to_owned(),
            (_, Some(head)) => format!("<th scope=\"col\" class=\"number\">{head}</th>"),
            (_, None) => format!("<th scope=\"col\">{head}</th>"),
        })
        .collect();
    let rows: String = rows.map(|row| row + "\n").collect();
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>{0}</caption>\
         <thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n",
        escape(caption)
    )
}

/// A table of numbers; `whose` is the head of the names.
fn numbers(caption: &str, whose: &str, columns: &[&str], rows: &[Row]) -> String {
    let columns: Vec<String> = columns.iter().map(|head| format!("{NUMBERS}{head}")).collect();
    let mut heads = vec![whose];
    heads.extend(columns.iter().map(String::as_str));
    let rows = rows.iter().map(|row| {
        let cells: String =
            row.cells.iter().map(|cell| format!("<td class=\"number\">{}</td>", escape(cell))).collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(&row.name))
    });
    table(caption, &heads, rows)
}

fn facts(facts: &[Fact]) -> String {
    let lines: String = facts
        .iter()
        .map(|fact| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&fact.name), escape(&fact.value)))
        .collect();
    format!("<dl>\n{lines}</dl>\n")
}

/// `color` is the one that the rule has in the pictures.
fn fault_row(row: &FaultRow, color: Option<Color>) -> String {
    let total = row.fates.iter().map(|&(_, count)| count).sum::<u64>().max(1) as f64;
    let present = || row.fates.iter().filter(|(_, count)| *count > 0);
    let bars: String = present()
        .map(|(fate, count)| {
            let share = *count as f64 / total * 100.0;
            format!("<span class=\"fate {}\" style=\"width:{share:.2}%\"></span>", escape(fate))
        })
        .collect();
    let words: Vec<String> = present().map(|(fate, count)| format!("{count} {fate}")).collect();
    let swatch = color.map(Color::hex).map_or(String::new(), |hex| {
        format!(
            "<span class=\"swatch\" aria-hidden=\"true\" style=\"background:var(--{}, {hex})\"></span>",
            &hex[1..]
        )
    });
    let note =
        row.note.as_ref().map_or(String::new(), |note| format!("<p class=\"note\">{}</p>", escape(note)));
    format!(
        "<tr><th scope=\"row\">{swatch}{}<br><code>{}</code>{note}</th><td class=\"number\">{}</td><td class=\"number\">{}</td>\
         <td><div class=\"fates\" aria-hidden=\"true\">{bars}</div>{}</td><td class=\"number\">{}</td></tr>",
        escape(&row.name),
        escape(&row.rule),
        row.hits,
        row.faults,
        escape(&words.join(", ")),
        row.failing_blocks
    )
}

fn figure(class: &str, scene: &Scene, label: &str, below: &str) -> String {
    format!("<figure class=\"{class}\">\n{}{below}</figure>\n", svg_element(scene, label))
}

/// A chart, and in words what its lines go through.
fn scene_and_label(of: &Chart, timeline: &Timeline) -> (String, Scene) {
    let words: Vec<String> = of
        .lines
        .iter()
        .map(|line| {
            let values = || line.points.iter().map(|&(_, value)| value).filter(|value| value.is_finite());
            let count = values().count();
            if count == 0 {
                return format!("{} without a value", line.name);
            }
            let least = values().fold(f64::INFINITY, f64::min);
            let largest = values().fold(f64::NEG_INFINITY, f64::max);
            let mean = values().sum::<f64>() / count as f64;
            format!(
                "{} from {} to {}, on average {}",
                line.name,
                of.unit.write(least),
                of.unit.write(largest),
                of.unit.write(mean)
            )
        })
        .collect();
    let label = format!("{} over time: {}", of.title, words.join("; "));
    (label, chart::scene(of, timeline))
}

fn line_chart(of: &Chart, timeline: &Timeline) -> String {
    let (label, scene) = scene_and_label(of, timeline);
    figure("timeline", &scene, &label, "")
}

/// A chart on an even and on a logarithmic axis, of which one is shown: as its numbers suggest, or as the reader chooses.
fn charts_of_both_scales(of: &Chart, timeline: &Timeline, number: usize) -> String {
    let is_above_zero = |&(_, value): &(f64, f64)| value.is_finite() && value > 0.0;
    if !of.lines.iter().flat_map(|line| &line.points).any(is_above_zero) {
        return line_chart(of, timeline);
    }
    let drawn = |is_logarithmic| {
        let (label, scene) = scene_and_label(&Chart { is_logarithmic, ..of.clone() }, timeline);
        svg_element(&scene, &label)
    };
    let checked = if of.is_logarithmic { " checked" } else { "" };
    format!(
        "<figure class=\"timeline\">\n<input type=\"checkbox\" class=\"scale\" id=\"scale-{number}\"{checked}>\
         <label class=\"scale\" for=\"scale-{number}\">logarithmic<span class=\"hidden\">: {}</span></label>\n\
         <div class=\"even\">{}</div>\n<div class=\"logarithmic\">{}</div>\n</figure>\n",
        escape(&of.title),
        drawn(false),
        drawn(true)
    )
}

/// What the cursor reads its values from.
fn series(timeline: &Timeline) -> String {
    let mut out = format!(
        "{{\"seconds\":{},\"left\":{LEFT},\"axis\":{AXIS},\"width\":{WIDTH},\"hits\":[",
        number(timeline.seconds)
    );
    let mut last = f64::NEG_INFINITY;
    let mut places = Vec::new();
    // Hits that the cursor could not stop at one by one are one stop.
    for hit in &timeline.hits {
        if hit.at - last > timeline.seconds / 1000.0 {
            places.push(number(hit.at));
            last = hit.at;
        }
    }
    out += &places.join(",");
    out += "],\"charts\":[";
    let charts: Vec<String> = timeline.charts.iter().chain(&timeline.probes).map(chart_series).collect();
    out += &charts.join(",");
    out + "]}"
}

fn chart_series(of: &Chart) -> String {
    let lines: Vec<String> = of
        .lines
        .iter()
        .map(|line| {
            let every = line.points.len().div_ceil(CURSOR_POINTS_MAX).max(1);
            let points: Vec<String> = line
                .points
                .iter()
                .step_by(every)
                .map(|&(at, value)| {
                    let text = if value.is_finite() { string(&of.unit.write(value)) } else { "null".into() };
                    format!("[{},{text}]", number(at))
                })
                .collect();
            format!("{{\"name\":{},\"points\":[{}]}}", string(&line.name), points.join(","))
        })
        .collect();
    format!("{{\"title\":{},\"lines\":[{}]}}", string(&of.title), lines.join(","))
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{}", (value * 1e6).round() / 1e6) } else { "0".to_owned() }
}

/// A JSON string that can stand inside a script element.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Device, Expectation, Histogram, Line, Mark, ShownInjection, Span, Strip, StripMark};
    use crate::{Unit, figures};

    fn page() -> Page {
        let hostile = "<script>alert(1)</script>";
        Page {
            name: hostile.into(),
            subtitle: "ext4, seed 42".into(),
            passes: Some(false),
            summary: "1 fault was silent".into(),
            expectations: vec![Expectation {
                name: "silent".into(),
                wanted: "0".into(),
                found: "1".into(),
                holds: false,
            }],
            stack: vec![
                Device { name: "memory".into(), detail: "1 GiB".into(), has_faults: false },
                Device { name: "faults".into(), detail: hostile.into(), has_faults: true },
            ],
            faults: vec![FaultRow {
                name: "rot".into(),
                rule: "write: bit_flip".into(),
                hits: 1,
                faults: 1,
                fates: vec![("silent".into(), 1)],
                failing_blocks: 1,
                note: Some(hostile.into()),
            }],
            timeline: Timeline {
                phases_are: None,
                seconds: 2.0,
                phases: vec![Span { name: "run".into(), from: 0.0, to: 2.0 }],
                windows: vec![Span { name: "rot".into(), from: 0.5, to: 1.5 }],
                hits: vec![ShownInjection { at: 0.7, rule: "rot".into(), what: hostile.into(), count: 1 }],
                marks: vec![Mark { at: 1.0, name: "interrupted".into() }],
                charts: vec![Chart {
                    title: "Throughput".into(),
                    unit: Unit::BytesPerSecond,
                    lines: vec![Line { name: hostile.into(), points: vec![(1.0, 1e6), (2.0, f64::NAN)] }],
                    is_logarithmic: false,
                }],
                probes: Vec::new(),
            },
            latencies: vec![Histogram { name: "write".into(), counts: vec![(1000, 3)] }],
            places: vec![Strip {
                shows_rules: true,
                name: "device".into(),
                bytes: 1 << 20,
                marks: vec![StripMark { offset: 4096, length: 4096, kind: "bit_flip".into(), count: 1 }],
            }],
            failing: vec![FailingBlock {
                object: hostile.into(),
                block: 1,
                offset: 4096,
                what: hostile.into(),
                seen: hostile.into(),
                cause: hostile.into(),
            }],
            failing_total: 7,
            degradation: vec![Row { name: hostile.into(), cells: vec![hostile.into(); 8] }],
            command: "rotproof run 'a b.yaml'".into(),
            ..Page::default()
        }
    }

    #[test]
    fn everything_is_on_the_page_and_nothing_comes_from_elsewhere() {
        let page = page();
        let text = html(&page);
        for wanted in
            ["FAIL", "1 silent", "interrupted", "rotproof run", "faults act here", "Throughput over time"]
        {
            assert!(text.contains(wanted), "{wanted}");
        }
        for forbidden in ["http:", "https:", "src=\"", "url(", "@import"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
        assert_eq!(text.matches("class=\"hit\"").count(), 2, "one chart on two scales, one hit");
        assert_eq!(text.matches("class=\"scale\" id=\"scale-0\">").count(), 1, "it begins on the even one");
        assert!(text.contains("And 6 more: failures.jsonl"));
        assert_eq!(text.matches("class=\"rule-hit\"").count(), 1);
        assert_eq!(figures(&page).len(), 4);
    }

    #[test]
    fn a_hostile_name_stays_a_text_everywhere() {
        let text = html(&page());
        assert_eq!(text.matches("<script").count(), 2, "the data and the cursor");
        assert!(!text.contains("<script>alert"));
    }

    #[test]
    fn messages_of_the_kernel_are_lines_and_many_are_shown_when_they_are_asked_for() {
        let with = |count: usize| {
            let kernel_messages = (0..count).map(|n| format!("{n}: <EXT4-fs> error")).collect();
            html(&Page { kernel_messages, ..page() })
        };
        assert!(!with(0).contains("of the kernel"));
        let few = with(1);
        assert!(few.contains("<details class=\"messages\" open><summary>1 message of the kernel</summary>"));
        assert!(few.contains("<li><code>0: &lt;EXT4-fs&gt; error</code></li>"));
        let many = with(300);
        assert!(many.contains("<details class=\"messages\"><summary>300 messages of the kernel</summary>"));
        assert_eq!(many.matches("EXT4-fs").count(), 300);
    }

    #[test]
    fn a_page_without_faults_says_nothing_of_them() {
        let faults = Vec::new();
        let text = html(&Page { faults, stack: Vec::new(), ..page() });
        assert!(text.contains("The same requests again:") && text.contains(">Where failures lie<"));
        assert!(!text.contains("The same faults") && !text.contains("faults act here"));
    }

    #[test]
    fn an_empty_page_is_a_page() {
        let text = html(&Page::default());
        assert!(text.contains("id=\"verdict\"") && !text.contains("id=\"time\""));
    }
}
