//! The place that manifests were rendered for. A kustomization can move objects to another
//! namespace and rename their service account, but it does not change flags and admission policies.

use std::fmt;

use crate::election::LeaseName;

/// Namespace and service account that the manifests of this pod were rendered for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFor {
    namespace: String,
    account: String,
}

impl RenderedFor {
    /// Parses `<namespace>/<account>`.
    pub(super) fn from_text(text: &str) -> Result<Self, String> {
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

    /// True if the pod runs elsewhere. An unknown namespace or account is not compared.
    pub fn differs(&self, namespace: Option<&str>, account: Option<&str>) -> bool {
        namespace.is_some_and(|namespace| namespace != self.namespace)
            || account.is_some_and(|account| account != self.account)
    }

    /// True if a lease is named after the rendered namespace. The charts name a lease so by default,
    /// and pods that were moved from there would all contend for that one lease.
    pub fn names(&self, lease: &LeaseName) -> bool {
        let rest = lease.as_str().strip_prefix(&self.namespace);
        rest.is_some_and(|rest| rest.starts_with('.'))
    }
}

impl fmt::Display for RenderedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_elsewhere_differs() {
        let rendered = RenderedFor::from_text("shop/orders").unwrap();
        assert!(!rendered.differs(Some("shop"), Some("orders")));
        assert!(!rendered.differs(None, None));
        assert!(rendered.differs(Some("prod"), Some("orders")));
        assert!(rendered.differs(Some("shop"), Some("a-orders")));
    }

    #[test]
    fn a_lease_is_named_after_a_whole_namespace() {
        let rendered = RenderedFor::from_text("shop/orders").unwrap();
        for (lease, named) in [
            ("shop.orders", true),
            ("shopping.orders", false),
            ("shop", false),
        ] {
            assert_eq!(
                rendered.names(&LeaseName::new(lease).unwrap()),
                named,
                "{lease}"
            );
        }
    }

    #[test]
    fn both_parts_are_required() {
        for wrong in ["shop", "/orders", "shop/", "a/b/c", "Shop/orders"] {
            assert!(RenderedFor::from_text(wrong).is_err(), "{wrong}");
        }
    }
}
