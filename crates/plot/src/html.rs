//! A scene as a page of its own: no network, no scripts.

use crate::scene::Scene;
use crate::svg::{escape, svg};

/// The HTML document, with the numbers behind the picture as a table of text under it.
pub fn html(title: &str, scene: &Scene, numbers: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n\
         body {{ font-family: sans-serif; margin: 2em auto; max-width: 1100px; color: #222; background: #fff }}\n\
         svg {{ max-width: 100%; height: auto }}\npre {{ overflow-x: auto; background: #f5f5f5; padding: 1em }}\n\
         </style>\n</head>\n<body>\n{}<pre>{}</pre>\n</body>\n</html>\n",
        svg(scene),
        escape_lines(numbers)
    )
}

fn escape_lines(text: &str) -> String {
    text.lines().map(|line| escape(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let page = html("a < b", &Scene::default(), "x\n<y>");
        assert!(page.contains("<title>a &lt; b</title>") && page.contains("x\n&lt;y&gt;\n"));
        assert_eq!(page.matches("http").count(), 1, "the name of the SVG dialect only");
    }
}
