//! Metrics for Prometheus while a command goes on: the options, and the server.

use std::sync::Arc;

use clap::Args;
use rotproof_block::Error;
use rotproof_serve::metrics::{MetricsAddress, MetricsServer, Observed};

use crate::output::Output;

/// The options of every command that has metrics.
#[derive(Clone, Debug, Args)]
pub struct MetricsArgs {
    /// Serve metrics for Prometheus, such as at :9464
    #[arg(long, value_name = "WHERE")]
    pub metrics: Option<MetricsAddress>,

    /// Let other machines read them too
    #[arg(long, requires = "metrics")]
    pub metrics_for_all: bool,
}

impl MetricsArgs {
    /// Serves what `page` gives, if it is wanted, until what is returned is dropped; says where.
    pub fn serve(
        &self,
        output: Output,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Option<MetricsServer>, Error> {
        let Some(address) = self.metrics else { return Ok(None) };
        let server = MetricsServer::start(address, self.metrics_for_all, Arc::new(page))?;
        output.note(format_args!("metrics: http://{}/metrics", server.address()));
        Ok(Some(server))
    }

    /// As [`MetricsArgs::serve`], for runs, which are to be told to what is returned.
    pub fn observe(&self, output: Output) -> Result<(Arc<Observed>, Option<MetricsServer>), Error> {
        let observed = Arc::new(Observed::default());
        let shown = Arc::clone(&observed);
        let server = self.serve(output, move || shown.page())?;
        Ok((observed, server))
    }
}
