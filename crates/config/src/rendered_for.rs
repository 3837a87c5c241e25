//! The namespace and service account that manifests were rendered for. A kustomization can change
//! both, but not the lease name in the flags or the admission policies. Without this check, several
//! overlays could share a lease or lock.

use std::fmt;

use serde::Deserialize;

use leasehold_core::election::ResourceName;
use leasehold_host::{CommandError, exit};

/// Namespace and service account of the rendered manifests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RenderedFor {
    namespace: String,
    account: String,
}

impl RenderedFor {
    fn differs(&self, namespace: Option<&str>, account: Option<&str>) -> bool {
        namespace.is_some_and(|namespace| namespace != self.namespace)
            || account.is_some_and(|account| account != self.account)
    }

    /// Returns true if the lease has the charts' default name, which begins with the namespace.
    fn names(&self, lease: &ResourceName) -> bool {
        let rest = lease.as_str().strip_prefix(&self.namespace);
        rest.is_some_and(|rest| rest.starts_with('.'))
    }
}

impl TryFrom<String> for RenderedFor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let legal = |part: &str| {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !part.is_empty() && part.chars().all(legal)
        };
        match text.split_once('/') {
            Some((namespace, account)) if legal(namespace) && legal(account) => Ok(Self {
                namespace: namespace.to_owned(),
                account: account.to_owned(),
            }),
            _ => {
                Err("expected <namespace>/<service account>, such as shop/orders-leasehold".into())
            }
        }
    }
}

impl fmt::Display for RenderedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.account)
    }
}

/// Namespace and service account of this pod, and the pair that its manifests were rendered for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Placement {
    /// Namespace of this pod, if known.
    #[serde(rename = "pod_namespace")]
    pub namespace: Option<String>,
    /// Service account of this pod, if known.
    #[serde(rename = "pod_account")]
    pub account: Option<String>,
    /// `None` if no chart rendered the manifests.
    pub rendered_for: Option<RenderedFor>,
}

/// Remedy for a pod whose namespace or account differs from its manifests.
pub const RENDER_AGAIN: &str = "render the chart again with --namespace and the final release name (kustomize: \
     helmCharts[].namespace and helmCharts[].releaseName)";

impl Placement {
    /// Returns the namespace and account that the manifests were rendered for, if this pod's
    /// namespace or account differs.
    pub fn moved(&self) -> Option<&RenderedFor> {
        let rendered = self.rendered_for.as_ref()?;
        let differs = rendered.differs(self.namespace.as_deref(), self.account.as_deref());
        differs.then_some(rendered)
    }

    /// Rejects a default name that was rendered for another namespace or service account. `kind` is
    /// "lease" or "lock".
    pub fn check(&self, kind: &str, name: &ResourceName) -> Result<(), CommandError> {
        let Some(rendered) = self.moved().filter(|rendered| rendered.names(name)) else {
            return Ok(());
        };
        let what = format!(
            "{kind} {name} belongs to {rendered} (the manifests were rendered for that account), but this pod runs as {self}: \
             pods of both would share one {kind}"
        );
        let remedy = format!(
            "{RENDER_AGAIN}, or set leasehold.leaseName in each overlay to a name that does not begin with that namespace"
        );
        Err(CommandError::new(exit::CONFIGURATION, what).to_fix(remedy))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or("(unknown namespace)");
        let account = self.account.as_deref().unwrap_or("(unknown account)");
        write!(f, "{namespace}/{account}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_in_another_namespace_or_account_differs() {
        let rendered = RenderedFor::try_from("shop/orders".to_owned()).unwrap();
        assert!(!rendered.differs(Some("shop"), Some("orders")));
        assert!(!rendered.differs(None, None));
        assert!(rendered.differs(Some("prod"), Some("orders")));
        assert!(rendered.differs(Some("shop"), Some("a-orders")));
    }

    #[test]
    fn a_lease_name_begins_with_a_whole_namespace() {
        let rendered = RenderedFor::try_from("shop/orders".to_owned()).unwrap();
        for (lease, named) in [
            ("shop.orders", true),
            ("shopping.orders", false),
            ("shop", false),
        ] {
            assert_eq!(
                rendered.names(&ResourceName::new(lease).unwrap()),
                named,
                "{lease}"
            );
        }
    }

    #[test]
    fn both_parts_are_required() {
        for wrong in ["shop", "/orders", "shop/", "a/b/c", "Shop/orders"] {
            assert!(RenderedFor::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
