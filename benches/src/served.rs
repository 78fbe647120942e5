//! What measurements of served devices find, and the figures that are made of them: rates, and the CPU that one request
//! takes of the server, of the client, and of both.

use std::ops::Range;

use crate::figure::{Bar, Figure, median};

/// One run of a client on a server.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Requests a second.
    pub rate: f64,
    /// Microseconds of the server's CPU for one request.
    pub server_us: f64,
    /// Microseconds of the client's.
    pub client_us: f64,
}

/// What to look at in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Requests, or bytes of large ones, a second.
    Rate,
    /// The server's CPU.
    Server,
    /// The client's.
    Client,
    /// Both.
    Both,
}

impl Of {
    fn label(self) -> &'static str {
        match self {
            Self::Rate => "",
            Self::Server => ", CPU",
            Self::Client => ", client's CPU",
            Self::Both => ", CPU of both",
        }
    }

    fn value(self, run: &Run) -> f64 {
        match self {
            Self::Rate => run.rate,
            Self::Server => run.server_us,
            Self::Client => run.client_us,
            Self::Both => run.server_us + run.client_us,
        }
    }
}

/// All runs of one kind of request.
pub struct Cell {
    name: String,
    block_bytes: u64,
    /// What each server is called.
    servers: Vec<&'static str>,
    /// By server and round.
    runs: Vec<Vec<Run>>,
}

impl Cell {
    /// `rounds` turns of `measure` on each server, given by its position; nobody is always first.
    pub fn measure<E>(
        name: impl Into<String>,
        block_bytes: u64,
        servers: Vec<&'static str>,
        rounds: usize,
        mut measure: impl FnMut(usize) -> Result<Run, E>,
    ) -> Result<Self, E> {
        let mut runs = vec![Vec::new(); servers.len()];
        for round in 0..rounds {
            for turn in 0..servers.len() {
                let server = (turn + round) % servers.len();
                runs[server].push(measure(server)?);
            }
        }
        Ok(Self { name: name.into(), block_bytes, servers, runs })
    }

    /// The best of some servers in this: the fastest, or the one that takes the least CPU.
    pub fn best(&self, of: Of, among: Range<usize>) -> Option<usize> {
        let middle = |server: usize| {
            let middle = median(self.runs[server].iter().map(|run| of.value(run)));
            if of == Of::Rate { -middle } else { middle }
        };
        among.min_by(|&a, &b| middle(a).total_cmp(&middle(b)))
    }

    /// One server against another.
    pub fn figure(&self, of: Of, ours: usize, peer: usize, bar: Option<Bar>) -> Figure {
        let (unit, scale) = match of {
            Of::Rate if self.block_bytes >= 65536 => ("MB/s", self.block_bytes as f64 / 1e6),
            Of::Rate => ("k/s", 1e-3),
            Of::Server | Of::Client | Of::Both => ("us", 1.0),
        };
        let value = |run| of.value(run) * scale;
        let runs = self.runs[ours].iter().zip(&self.runs[peer]);
        let pairs: Vec<(f64, f64)> = runs.map(|(ours, peer)| (value(ours), value(peer))).collect();
        let (ours, peer) = (self.servers[ours], self.servers[peer]);
        let name = format!("{}{}, {ours} / {peer}", self.name, of.label());
        Figure::from_rounds(name, unit, &pairs, bar)
    }

    /// The same against the best of some others; none where there is no other.
    pub fn against_best(
        &self,
        of: Of,
        ours: usize,
        others: Range<usize>,
        bar: Option<Bar>,
    ) -> Option<Figure> {
        self.best(of, others).map(|peer| self.figure(of, ours, peer, bar))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_server_has_the_highest_rate_or_the_lowest_cost_and_rounds_are_paired() {
        let runs = [(10.0, 5.0, 1.0), (20.0, 8.0, 2.0), (15.0, 6.0, 0.5)];
        let mut order = Vec::new();
        let cell = Cell::measure("x", 4096, vec!["ours", "fast", "cheap"], 2, |server| {
            order.push(server);
            let (rate, server_us, client_us) = runs[server];
            let slowed = if order.len() > 3 { 0.5 } else { 1.0 };
            Ok::<_, ()>(Run { rate: rate * 1e3 * slowed, server_us, client_us })
        })
        .expect("nothing fails");
        assert_eq!(order, [0, 1, 2, 1, 2, 0]);
        assert_eq!(cell.best(Of::Rate, 1..3), Some(1));
        assert_eq!(cell.best(Of::Server, 1..3), Some(2));
        assert_eq!(cell.best(Of::Both, 0..3), Some(0));
        assert!(cell.against_best(Of::Client, 0, 1..1, None).is_none());
        let figure = cell.figure(Of::Rate, 0, 1, None);
        assert!((figure.ratio - 0.5).abs() < 1e-9 && (figure.ours - 7.5).abs() < 1e-9, "{figure}");
        assert_eq!(cell.figure(Of::Both, 0, 2, None).name, "x, CPU of both, ours / cheap");
    }
}
