//! What the log says at the start of how the configuration was given.

use tracing::{info, warn};

use crate::config::{Config, Sources, UriSource};

/// Warns of variables that are not read, and says what a reload cannot read again.
pub(super) fn tell(config: &Config, sources: &Sources) {
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
