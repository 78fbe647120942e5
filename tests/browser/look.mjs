// Opens a page without a network and says what a person would meet there, as one line of JSON.
//
//   node look.mjs FOLDER-WITH-NODE-MODULES PAGE FOLDER-FOR-PICTURES
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [modules, page_path, pictures] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "x.js"))("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const found = { messages: [], requests: [], schemes: {} };
for (const scheme of ["light", "dark"]) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width: 1100, height: 800 } });
  await context.setOffline(true);
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("console", (message) => found.messages.push(message.text()));
  page.on("pageerror", (error) => found.messages.push(String(error)));
  page.on("request", (request) => found.requests.push(request.url()));
  await page.goto(pathToFileURL(page_path).href);
  found.schemes[scheme] = await page.evaluate(() => {
    const luminance = (color) => {
      const [r, g, b] = color.match(/[\d.]+/g).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => {
      const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
      return (light + 0.05) / (dark + 0.05);
    };
    const paper = getComputedStyle(document.body).backgroundColor;
    const texts = [...document.querySelectorAll("p, td, th, dt, dd, a, h1, h2, label, .badge")];
    const drawn = [...document.querySelectorAll("svg text")];
    return {
      paper,
      contrast: Math.min(...texts.map((text) => contrast(getComputedStyle(text).color, paper))),
      contrast_drawn: Math.min(...drawn.map((text) => contrast(getComputedStyle(text).fill, paper))),
      // Of the two scales of a chart one is seen.
      charts: [...document.querySelectorAll("svg:not(.frame)")].filter((svg) => svg.getBoundingClientRect().height > 0).length,
      unlabelled: document.querySelectorAll("svg:not([aria-label]), svg:not([role=img])").length,
      lines: [...document.querySelectorAll("svg polyline")].filter((line) => line.getBBox().width > 0).length,
      wider_than_window: document.documentElement.scrollWidth > window.innerWidth,
    };
  });
  await page.screenshot({ path: join(pictures, `${scheme}.png`), fullPage: true });
  if (scheme === "light") {
    // Hits of all rules, as the marks of the ribbon count them.
    found.hits = await page.evaluate(() =>
      [...document.querySelectorAll(".rule-hit title")]
        .map((title) => Number(title.textContent.match(/: (\d+) injections from /)?.[1] ?? 1))
        .reduce((sum, count) => sum + count, 0));
    // By keyboard alone: to the slider, and along it.
    const readings = [];
    for (let stops = 0; stops < 200; stops++) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement.id)) === "moment") break;
    }
    found.reached = await page.evaluate(() => document.activeElement.id);
    for (const key of ["ArrowRight", "End", "Home"]) {
      await page.keyboard.press(key);
      readings.push(await page.locator("#values").textContent());
    }
    found.readings = readings;
    // Without hits there is nothing to step to.
    if (await page.locator("#next").isVisible()) {
      await page.keyboard.press("Home");
      await page.locator("#next").click();
      found.at_hit = await page.locator("#values").textContent();
    }
    found.zoom = await zoom(page);
    found.scales = await scales(page);
    found.failing = await page.locator("#failing tbody tr").count();
    found.sections = await page.evaluate(() => [...document.querySelectorAll("section")].map((section) => section.id));
    found.text = await page.evaluate(() => document.body.innerText);
    await page.emulateMedia({ media: "print" });
    found.printed = await page.evaluate(() => ({
      navigation: getComputedStyle(document.querySelector("nav")).display,
      charts: [...document.querySelectorAll("svg:not(.frame)")].filter((svg) => svg.getBoundingClientRect().height > 0).length,
    }));
    await page.pdf({ path: join(pictures, "page.pdf"), format: "A4" });
  }
  // A telephone: nothing but tables may be wider than the screen.
  await page.emulateMedia({ media: "screen" });
  await page.setViewportSize({ width: 390, height: 800 });
  found.schemes[scheme].wider_than_telephone =
    await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  await context.close();
}
// Drags over a quarter of the first time line, looks, and goes back by a double click; then by the buttons.
async function zoom(page) {
  const chart = page.locator(".timeline svg:visible").first();
  const seen = () => page.evaluate(() => {
    const svg = [...document.querySelectorAll(".timeline svg")].find((svg) => svg.getBoundingClientRect().height > 0);
    const frame = svg.querySelector("svg.frame");
    return {
      times: [...svg.querySelectorAll(".times text")].map((text) => text.textContent),
      // Of the whole axis.
      share: frame ? frame.viewBox.baseVal.width / frame.width.baseVal.value : 1,
      frames: document.querySelectorAll("svg.frame").length,
      stretched: [...document.querySelectorAll("svg.frame text")].filter((text) => {
        const wide = text.getBoundingClientRect();
        return wide.height > 0 && text.textContent.length === 1 && wide.width > 2 * wide.height;
      }).length,
      outside: [...document.querySelectorAll(".times text")].filter((text) => {
        const box = text.getBoundingClientRect(), page = document.body.getBoundingClientRect();
        return box.height > 0 && (box.left < page.left || box.right > page.right);
      }).length,
    };
  });
  const before = await seen();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  const at = (share) => box.x + box.width * share;
  await page.mouse.move(at(0.4), box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(at(0.5), box.y + box.height / 2);
  await page.mouse.move(at(0.6), box.y + box.height / 2);
  await page.mouse.up();
  const dragged = await seen();
  await page.screenshot({ path: join(pictures, "zoomed.png") });
  await page.mouse.dblclick(at(0.5), box.y + box.height / 2);
  const back = await seen();
  await page.locator("#closer").click();
  await page.locator("#closer").click();
  const closer = await seen();
  await page.locator("#farther").click();
  const farther = await seen();
  await page.locator("#whole").click();
  return { before, dragged, back, closer, farther, whole: await seen(), disabled: await page.locator("#whole").isDisabled() };
}

// Turns the scale of the first chart over and back.
async function scales(page) {
  const box = page.locator("input.scale").first();
  const seen = () => page.evaluate(() => {
    const figure = document.querySelector("input.scale").parentElement;
    const shown = [...figure.querySelectorAll("div")].filter((side) => side.getBoundingClientRect().height > 0);
    return shown.map((side) => side.className).join();
  });
  const first = await seen();
  await box.click();
  const second = await seen();
  await box.click();
  return [first, second, await seen()];
}

await browser.close();
console.log(JSON.stringify(found));
