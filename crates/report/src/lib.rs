//! The page that shows one run: what was tried, the verdict, what happened when, where faults and failures lie, the
//! machine meanwhile, and the command that repeats it. One HTML file that needs nothing from anywhere.
//!
//! A [`Page`] holds what is to be seen as plain numbers and texts; [`html`] writes it, [`figures`] gives the same charts
//! one by one, for a paper. Nothing here knows trials, loads or files, and no chart depends on a script: the one that is
//! in the page adds a cursor over all time lines.

mod chart;
mod document;
mod histogram;
mod mark;
mod page;
mod ribbon;
mod rule_color;
mod strip;
mod unit;

pub use document::html;
pub use page::{
    Chart, Device, Expectation, Fact, FailingBlock, FaultRow, Histogram, Line, Mark, Page, PowerLoss, Row,
    ShownInjection, Span, Strip, StripMark, Timeline,
};
pub use unit::Unit;

use rotproof_plot::Scene;

/// Every chart of a page with a name that suits a file, in the order of the page.
pub fn figures(page: &Page) -> Vec<(String, Scene)> {
    let mut figures = Vec::new();
    if page.timeline.has_ribbon() {
        figures.push(("faults".to_owned(), ribbon::scene(&page.timeline)));
    }
    for chart in page.timeline.charts.iter().chain(&page.timeline.probes) {
        figures.push((file_name(&chart.title), chart::scene(chart, &page.timeline)));
    }
    if let Some(loss) = page.power_loss.as_ref().filter(|loss| loss.timeline.has_ribbon()) {
        figures.push(("recording".to_owned(), ribbon::scene(&loss.timeline)));
    }
    if !page.latencies.is_empty() {
        figures.push(("latency-histogram".to_owned(), histogram::scene(&page.latencies)));
    }
    if !page.places.is_empty() {
        figures.push(("places".to_owned(), strip::scene(&page.places, &page.timeline)));
    }
    figures
}

/// Lower case, and hyphens for everything that is neither letter nor digit.
fn file_name(title: &str) -> String {
    let mut name = String::with_capacity(title.len());
    for c in title.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_becomes_the_name_of_a_file() {
        assert_eq!(file_name("Latency of reads (p50, p99)"), "latency-of-reads-p50-p99");
        assert_eq!(file_name("../x"), "x");
    }
}
