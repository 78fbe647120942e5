//! A cluster of PostgreSQL: many files, each a map of its own.

use std::collections::BTreeMap;
use std::path::Path;

use rotproof_block::{Error, ErrorKind};
use rotproof_kinds::{Cluster, DataDirectory, FileSystemKind, Kind, ReadOptions, Total, read_cluster};
use serde_json::{Value, json};

use super::{DAMAGES_SHOWN, Drawing, MapArgs, WIDTH, draw, of_extent, owner, table_of};
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::table::{Align, Table, clip};
use crate::units;

/// What is asked of a whole data directory.
pub(super) fn show(
    directory: &DataDirectory,
    args: &MapArgs,
    drawing: Option<Drawing>,
    output: Output,
) -> Result<(), CommandError> {
    if args.block.is_some() || args.offset.is_some() {
        let what =
            "a cluster has many files; name one of them, such as base/5/1259, to ask for a place in it";
        return Err(Error::new(ErrorKind::Invalid, what).into());
    }
    let cluster = read_cluster(directory, ReadOptions { names: true })
        .map_err(|error| error.while_doing(format!("reading {}", args.device.display())))?;
    let word = args.kind.as_deref();
    if args.json {
        output.json(&as_json(&cluster, word));
    } else if let Some(word) = word {
        show_kind(&cluster, word, output);
    } else {
        output.result(totals_table(&cluster, &args.device, output.stdout_paint()));
    }
    if let (Some(drawing), Some(path)) = (drawing, &args.picture) {
        let text = totals_table(&cluster, &args.device, Paint::OFF);
        draw(drawing, path, &cluster.joined(), &args.device, &text)?;
    }
    if !args.json {
        tell_damages(&cluster, output);
    }
    Ok(())
}

fn totals(cluster: &Cluster) -> BTreeMap<Kind, Total> {
    let mut totals: BTreeMap<Kind, Total> = BTreeMap::new();
    for (kind, total) in cluster.files.iter().flat_map(|file| file.map.totals()) {
        let all = totals.entry(kind).or_default();
        all.bytes += total.bytes;
        all.extents += total.extents;
    }
    totals
}

fn size(cluster: &Cluster) -> u64 {
    cluster.files.iter().map(|file| file.map.size).sum()
}

fn totals_table(cluster: &Cluster, device: &Path, paint: Paint) -> String {
    let sums = match cluster.has_checksums {
        Some(true) => "with checksums",
        Some(false) => "without checksums",
        None => "nobody knows whether with checksums",
    };
    let head = format!(
        "{} in {}, {} in {} files, {sums}",
        FileSystemKind::Postgres.name(),
        device.display(),
        units::bytes(size(cluster)),
        units::count(cluster.files.len() as u64)
    );
    table_of(&head, &totals(cluster), paint)
}

/// The whole cluster, or what of it `word` means.
fn as_json(cluster: &Cluster, word: Option<&str>) -> Value {
    let files: Vec<Value> = cluster
        .files
        .iter()
        .filter_map(|file| {
            let is_wanted = |kind: Kind| word.is_none_or(|word| kind.is_meant_by(word));
            let extents = file.map.extents().iter().filter(|extent| is_wanted(extent.kind));
            let extents: Vec<Value> = extents.map(|extent| of_extent(&file.map, extent)).collect();
            let is_told = word.is_none() || !extents.is_empty();
            is_told.then(|| {
                json!({
                    "file": file.path,
                    "size": file.map.size,
                    "extents": extents,
                    "damages": file.map.damages,
                    "damages_count": file.map.damages_count,
                })
            })
        })
        .collect();
    let totals: serde_json::Map<String, Value> =
        totals(cluster).into_iter().map(|(kind, total)| (kind.word().to_owned(), json!(total))).collect();
    json!({
        "file_system": FileSystemKind::Postgres,
        "block_bytes": 8192,
        "size": size(cluster),
        "has_checksums": cluster.has_checksums,
        "totals": totals,
        "files": files,
        "damages_count": damages_count(cluster),
    })
}

fn show_kind(cluster: &Cluster, word: &str, output: Output) {
    let mut table = Table::new(&[
        ("file", Align::Left),
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("kind", Align::Left),
        ("of", Align::Left),
    ]);
    let mut is_empty = true;
    for file in &cluster.files {
        for extent in file.map.extents().iter().filter(|extent| extent.kind.is_meant_by(word)) {
            is_empty = false;
            table.row([
                file.path.clone(),
                extent.start.to_string(),
                extent.length().to_string(),
                extent.kind.to_string(),
                owner(&file.map, extent),
            ]);
        }
    }
    match is_empty {
        true => output.result(format_args!("this {} has no {word}", FileSystemKind::Postgres.name())),
        false => output.result(table.render(output.stdout_paint())),
    }
}

fn damages_count(cluster: &Cluster) -> u64 {
    cluster.files.iter().map(|file| file.map.damages_count).sum()
}

fn tell_damages(cluster: &Cluster, output: Output) {
    let all = cluster.files.iter().flat_map(|file| file.map.damages.iter().map(move |damage| (file, damage)));
    let mut shown = 0;
    for (file, damage) in all.take(DAMAGES_SHOWN) {
        output.note(clip(&format!("damaged at {} of {}: {}", damage.offset, file.path, damage.what), WIDTH));
        shown += 1;
    }
    let count = damages_count(cluster);
    if count > shown {
        output.note(format_args!("and {} more; --json has more of them", count - shown));
    }
}
