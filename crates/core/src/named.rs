/// Defines an enum. Each value has a name for documents, files, logs and metrics.
macro_rules! named {
    (
        $(#[$doc:meta])*
        pub enum $list:ident {
            $($(#[$value_doc:meta])* $value:ident = $name:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $list {
            $(
                $(#[$value_doc])*
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                $value,
            )+
        }

        impl $list {
            /// All values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// Returns the name used in documents, files, logs and metrics.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl std::fmt::Display for $list {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use named;
