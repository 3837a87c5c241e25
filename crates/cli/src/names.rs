//! Names of leases and locks on the command line: `NAME`, `--lease NAME` or `--lock NAME`.

use clap::Args;

use super::values::name;
use leasehold_core::election::ResourceName;

/// Defines an argument that is either `NAME` or one of the flags.
macro_rules! name_argument {
    ($(#[$doc:meta])* $type:ident($noun:literal) { $($flag:ident: $flag_noun:literal),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Args)]
        #[group(required = true, multiple = false)]
        pub struct $type {
            #[arg(value_name = "NAME", value_parser = name, help = concat!("Name of the ", $noun))]
            name: Option<ResourceName>,
            $(
                #[arg(long, value_name = "NAME", value_parser = name,
                      help = concat!("Name of the ", $flag_noun, ", as a flag"))]
                $flag: Option<ResourceName>,
            )+
        }

        impl $type {
            /// Returns the name.
            pub fn get(&self) -> &ResourceName {
                let given = self.name.as_ref()$(.or(self.$flag.as_ref()))+;
                given.expect("clap requires one of them")
            }
        }
    };
}

name_argument! {
    /// The lease that a command reads or changes.
    LeaseName("lease") { lease: "lease" }
}
name_argument! {
    /// The lock that a command holds or changes.
    LockName("lock") { lock: "lock" }
}
name_argument! {
    /// The lease or lock that a command shows.
    DocumentName("lease or lock") { lease: "lease", lock: "lock" }
}

impl DocumentName {
    /// Returns the kind that the flag requires; a bare name accepts both kinds.
    pub fn kind(&self) -> &'static str {
        match (&self.lease, &self.lock) {
            (Some(_), _) => "lease",
            (None, Some(_)) => "lock",
            (None, None) => "lease or lock",
        }
    }
}
