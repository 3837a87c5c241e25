//! The kind of a deployment.

/// The kind of a deployment, as its servers describe themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StoreKind {
    /// A replica set.
    #[default]
    ReplicaSet,
    /// A sharded cluster, through its routers (`mongos`).
    Sharded,
    /// A single server without a replica set.
    Standalone,
}

impl StoreKind {
    /// Returns the name used in JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplicaSet => "replica_set",
            Self::Sharded => "sharded",
            Self::Standalone => "standalone",
        }
    }

    /// Returns true if a change stream may report a change seconds late. A router reports an event
    /// only when every shard has reported a later time, which a quiet shard does every ten seconds
    /// by default.
    pub const fn has_late_streams(self) -> bool {
        matches!(self, Self::Sharded)
    }

    /// Returns true if there are no other members that could have been elected, so that a
    /// linearizable read is neither needed nor supported.
    pub const fn has_one_copy(self) -> bool {
        matches!(self, Self::Standalone)
    }
}
