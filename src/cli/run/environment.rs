//! Log lines at startup about the sources of the configuration.

use tracing::{info, warn};

use crate::config::{Config, Sources, UriSource};

/// Warns of misspelt environment variables, and logs if a reload cannot read the connection string.
pub(super) fn log(config: &Config, sources: &Sources) {
    let lease = &config.lease.name;
    for (variable, meant) in sources.misspelt_variables() {
        warn!(
            %lease, variable, meant = meant.variable(),
            "environment variable ignored: configuration variables have two underscores after the section"
        );
    }
    if let UriSource::Pipe(path, _) = &config.mongodb.uri {
        info!(
            %lease, path = %path.display(),
            "connection string read from a pipe; a new one requires a restart"
        );
    }
}
