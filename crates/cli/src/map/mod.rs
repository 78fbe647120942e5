//! `rotproof map`: what every block of a file system is, or every page of a database.

mod args;
mod cluster;
mod picture;
mod trial;

use std::collections::BTreeMap;
use std::path::Path;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_kinds::{
    DataDirectory, Extent, FileSystemKind, Kind, Map, ReadOnlyFile, ReadOptions, Total, detect, read,
    read_cluster_file, words,
};
use serde_json::{Value, json};

pub use args::MapArgs;

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};
use crate::units;

/// So many damages are told to people.
const DAMAGES_SHOWN: usize = 5;
const WIDTH: usize = 76;

/// Reads the file system and prints its map, or a part of it.
pub fn map(args: &MapArgs, output: Output) -> Result<Exit, CommandError> {
    let wanted = args.kind.as_deref().map(wanted_kind).transpose()?;
    let drawing = args.picture.as_deref().map(Drawing::of).transpose()?;
    let is_trial = trial::is_meant(&args.device);
    if !is_trial && !args.values.is_empty() {
        let what = format!("{} is no trial, which --set could change", args.device.display());
        return Err(Error::new(ErrorKind::Invalid, what).into());
    }
    let mounted_at = mounted_at(&args.device)?;
    let cluster = DataDirectory::around(&args.device);
    let map = match &cluster {
        _ if is_trial => trial::read_map(args, output)?,
        Some((directory, None)) => {
            cluster::show(directory, args, drawing, output)?;
            return Ok(Exit::Pass);
        }
        Some((directory, Some(file))) => read_cluster_file(directory, file, ReadOptions { names: true })
            .map_err(|error| error.while_doing(format!("reading {}", args.device.display())))?,
        None => read_map(&args.device)?,
    };
    if let Some(place) = &mounted_at {
        output.note(format_args!(
            "note: it is mounted on {}; what it has in memory alone is not seen",
            place.display()
        ));
    }
    if let Some(offset) = place_of(args, &map)? {
        show_one(&map, offset, args.json, output);
    } else if args.json {
        output.json(&as_json(&map, wanted));
    } else if let Some(word) = wanted {
        show_kind(&map, word, output);
    } else {
        output.result(totals(&map, &args.device, output.stdout_paint()));
    }
    if let (Some(drawing), Some(path)) = (drawing, &args.picture) {
        draw(drawing, path, &map, &args.device, &totals(&map, &args.device, Paint::OFF))?;
    }
    if !args.json {
        tell_damages(&map, output);
    }
    Ok(Exit::Pass)
}

/// Draws a map into a new file, in HTML with a table of what is in it.
fn draw(drawing: Drawing, path: &Path, map: &Map, device: &Path, table: &str) -> Result<(), CommandError> {
    let scene = picture::scene(map, &device.display().to_string());
    let text = match drawing {
        Drawing::Svg => rotproof_plot::svg(&scene),
        Drawing::Html => rotproof_plot::html("what every block is", &scene, table),
    };
    let write = || {
        use std::io::Write;
        std::fs::File::create_new(path)?.write_all(text.as_bytes())
    };
    Ok(write().doing(|| format!("writing the picture to {}; it must not exist yet", path.display()))?)
}

/// The kind of a picture, by the name of its file.
#[derive(Clone, Copy)]
enum Drawing {
    Svg,
    Html,
}

impl Drawing {
    fn of(path: &Path) -> Result<Self, CommandError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("html") => Ok(Self::Html),
            _ => Err(Error::new(ErrorKind::Invalid, format!("{} is neither .svg nor .html", path.display()))
                .into()),
        }
    }
}

fn wanted_kind(word: &str) -> Result<&str, CommandError> {
    let all = words();
    if all.contains(&word) {
        return Ok(word);
    }
    let what = format!("there is no kind of block `{word}`; kinds are {}", all.join(", "));
    Err(Error::new(ErrorKind::Invalid, what).into())
}

/// Where the device is mounted, if it is.
fn mounted_at(device: &Path) -> Result<Option<std::path::PathBuf>, CommandError> {
    let Ok(real) = device.canonicalize() else { return Ok(None) };
    let mounts = rotproof_machine::mounts::mounts()?;
    Ok(mounts.into_iter().find(|mount| mount.source == real).map(|mount| mount.path))
}

fn read_map(device: &Path) -> Result<Map, CommandError> {
    let cached = ReadOnlyFile::open(device, false)?;
    // ext4 works in the cache of its device; the others have caches of their own, and what that of the device holds is old.
    let found = match detect(&cached) {
        Some(FileSystemKind::Xfs | FileSystemKind::Btrfs) => {
            read(&ReadOnlyFile::open(device, true)?, ReadOptions { names: true })
        }
        _ => read(&cached, ReadOptions { names: true }),
    };
    Ok(found.map_err(|error| error.while_doing(format!("reading {}", device.display())))?)
}

/// The offset that was asked for.
fn place_of(args: &MapArgs, map: &Map) -> Result<Option<u64>, CommandError> {
    let offset = match (args.block, args.offset) {
        (Some(block), _) => block.saturating_mul(map.block_bytes),
        (None, Some(offset)) => offset.0,
        (None, None) => return Ok(None),
    };
    if offset >= map.size {
        let what = format!(
            "there is nothing at {offset}: the device has {} bytes, {} blocks of {}",
            map.size,
            map.size / map.block_bytes,
            map.block_bytes
        );
        return Err(Error::new(ErrorKind::Invalid, what).into());
    }
    Ok(Some(offset))
}

fn owner(map: &Map, extent: &Extent) -> String {
    let owner = extent.owner;
    let number = match (owner.inode, owner.tree) {
        (Some(inode), Some(tree)) => format!("inode {inode} of tree {tree}"),
        (Some(inode), None) => format!("inode {inode}"),
        (None, Some(root)) if matches!(map.file_system, FileSystemKind::Sqlite | FileSystemKind::Lmdb) => {
            format!("root page {root}")
        }
        (None, Some(file)) if map.file_system == FileSystemKind::Postgres => format!("file node {file}"),
        (None, Some(tree)) => format!("tree {tree}"),
        (None, None) => return String::new(),
    };
    match map.name(owner) {
        Some(name) => format!("{number}, {name}"),
        None => number,
    }
}

fn show_one(map: &Map, offset: u64, is_json: bool, output: Output) {
    let Some(extent) = map.at(offset) else { return };
    let copies = map.copies_of(offset, 1);
    if is_json {
        let mut value = of_extent(map, extent);
        value["file_system"] = json!(map.file_system);
        value["offset"] = json!(offset);
        value["copies"] = json!(copies);
        return output.json(&value);
    }
    let mut lines = vec![format!("{}: {}", extent.kind, extent.kind.about())];
    lines.push(format!("  in the stretch from {} to {}", extent.start, extent.end));
    let whose = owner(map, extent);
    if !whose.is_empty() {
        lines.push(clip(&format!("  of {whose}"), WIDTH));
    }
    if copies.len() > 1 {
        let list: Vec<String> = copies.iter().map(u64::to_string).collect();
        lines.push(format!("  copy {} of {}: at {}", extent.copy, copies.len(), list.join(", ")));
    }
    output.result(lines.join("\n"));
}

fn of_extent(map: &Map, extent: &Extent) -> Value {
    let mut value = json!(extent);
    if let Some(name) = map.name(extent.owner) {
        value["path"] = json!(name);
    }
    value
}

/// The whole map, or what of it `word` means.
fn as_json(map: &Map, word: Option<&str>) -> Value {
    let is_wanted = |extent: &&Extent| word.is_none_or(|word| extent.kind.is_meant_by(word));
    let extents: Vec<Value> =
        map.extents().iter().filter(is_wanted).map(|extent| of_extent(map, extent)).collect();
    let totals: serde_json::Map<String, Value> =
        map.totals().into_iter().map(|(kind, total)| (kind.word().to_owned(), json!(total))).collect();
    json!({
        "file_system": map.file_system,
        "block_bytes": map.block_bytes,
        "size": map.size,
        "totals": totals,
        "extents": extents,
        "damages": map.damages,
        "damages_count": map.damages_count,
    })
}

fn show_kind(map: &Map, word: &str, output: Output) {
    let mut table = Table::new(&[
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("copy", Align::Right),
        ("kind", Align::Left),
        ("of", Align::Left),
    ]);
    let found: Vec<&Extent> = map.extents().iter().filter(|extent| extent.kind.is_meant_by(word)).collect();
    for extent in &found {
        table.row([
            extent.start.to_string(),
            extent.length().to_string(),
            extent.copy.to_string(),
            extent.kind.to_string(),
            owner(map, extent),
        ]);
    }
    match found.is_empty() {
        true => output.result(format_args!("this {} has no {word}", map.file_system.name())),
        false => output.result(table.render(output.stdout_paint())),
    }
}

fn totals(map: &Map, device: &Path, paint: Paint) -> String {
    let head = format!(
        "{} on {}, {}, blocks of {}",
        map.file_system.name(),
        device.display(),
        units::bytes(map.size),
        units::bytes(map.block_bytes)
    );
    table_of(&head, &map.totals(), paint)
}

/// How much there is of each kind, below a line that says of what.
fn table_of(head: &str, totals: &BTreeMap<Kind, Total>, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("kind", Align::Left),
        ("bytes", Align::Right),
        ("stretches", Align::Right),
        ("what", Align::Left),
    ]);
    for kind in Kind::all() {
        let Some(total) = totals.get(&kind) else { continue };
        let about = kind.about();
        let about = about.split_once(": ").map_or(about.as_str(), |(_, rest)| rest);
        table.row([
            kind.word().to_owned(),
            units::bytes(total.bytes),
            units::count(total.extents),
            about.to_owned(),
        ]);
    }
    format!("{}\n\n{}", paint.bold(clip(head, WIDTH)), table.render(paint))
}

fn tell_damages(map: &Map, output: Output) {
    for damage in map.damages.iter().take(DAMAGES_SHOWN) {
        output.note(clip(&format!("damaged at {}: {}", damage.offset, damage.what), WIDTH));
    }
    let shown = map.damages.len().min(DAMAGES_SHOWN) as u64;
    if map.damages_count > shown {
        output.note(format_args!("and {} more; --json has more of them", map.damages_count - shown));
    }
}
