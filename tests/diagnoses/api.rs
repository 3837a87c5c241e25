//! Situations in which the API server is unreachable, or refuses a daemon's label and Events.
//! Leadership does not depend on the API server.

use std::sync::Arc;

use leasehold_testbed::Certificates;
use leasehold_testbed::kubernetes::Place;

use crate::parts::Parts;
use crate::situation::Situation;

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

pub(crate) async fn situations(parts: &Parts) -> Vec<Situation> {
    let kubernetes = &parts.kubernetes;
    // Pods in this namespace have no rights.
    let namespace = kubernetes.namespace().await;
    let uri = parts.open.uri();
    let place = Arc::new(kubernetes.place(&namespace, "a", "app").await);
    let mut stranger = kubernetes.place(&namespace, "b", "app").await;
    stranger.credentials.publish("not.a.token");
    let at = |name: &'static str, lease: &str, place: &Arc<Place>, port: u16| {
        let directory = place.credentials.directory().display();
        let metadata = &place.pod.metadata;
        let variables = [
            (HOST, "127.0.0.1".to_owned()),
            (PORT, port.to_string()),
            ("POD_NAME", metadata.name.clone().unwrap()),
            ("POD_UID", metadata.uid.clone().unwrap()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.into()));
        Situation::run(name, &uri, lease)
            .flag("--kubernetes-enabled=on")
            .flag(&format!("--kubernetes-credentials={directory}"))
            .env(&variables)
            .says("to=leader")
            .keeps(Arc::clone(place))
    };
    let open = kubernetes.port();
    let hanging = kubernetes.proxy();
    hanging.stall();
    let impostor = at(
        "API server with a certificate of another CA",
        "api-ca",
        &place,
        open,
    );
    let directory = impostor.path("credentials");
    std::fs::create_dir(&directory).unwrap();
    for file in ["token", "namespace"] {
        let content = std::fs::read(place.credentials.directory().join(file)).unwrap();
        std::fs::write(directory.join(file), content).unwrap();
    }
    let others = Certificates::new();
    std::fs::copy(others.authority(), directory.join("ca.crt")).unwrap();
    vec![
        at(
            "API server's port closed",
            "api-closed",
            &place,
            parts.closed.number(),
        )
        .says("the API server cannot be reached: connection refused")
        .says(&format!(
            "server=https://127.0.0.1:{}",
            parts.closed.number()
        )),
        at(
            "API server that refuses the token",
            "api-401",
            &Arc::new(stranger),
            open,
        )
        .says("the API server does not accept the token (HTTP 401)"),
        at("API server that denies the right", "api-403", &place, open)
            .says("forbidden by the API server: a Role of this pod's account must allow")
            .says("missing_rule=\"patch pods/status\""),
        impostor
            .flag(&format!("--kubernetes-credentials={}", directory.display()))
            .says("the certificate of the API server is not signed by an authority in ca.crt"),
        at(
            "API server that does not answer",
            "api-hangs",
            &place,
            hanging.port(0),
        )
        .says("no answer in time")
        .keeps(hanging),
    ]
}
