//! Compares leasehold with other systems (`peers`): client-go's leader election on a Kubernetes API
//! server, etcdctl, a hand-made lock, and the minimum that the replica set allows. All systems are
//! measured in turn in one run, on one machine and one kind of storage, so the ratios of different
//! days are comparable.

pub(crate) mod busy;
pub(crate) mod client_go;
pub(crate) mod elections;
pub(crate) mod etcdctl;
pub(crate) mod locks;
pub(crate) mod many;
pub(crate) mod rest;
pub(crate) mod targets;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::launch::Setup;
use crate::machine;
use crate::report::Row;
use crate::results::OURS;

pub(crate) const LEASEHOLD: &str = OURS;
pub(crate) const FLOOR: &str = "floor";
pub(crate) const BY_HAND: &str = "by hand";
pub(crate) const CLIENT_GO: &str = "client-go";
pub(crate) const ELECT: &str = "etcdctl elect";
pub(crate) const LOCK: &str = "etcdctl lock";

/// Adds the rows of one system. If the system cannot be measured, adds a row with the reason
/// instead, so that the other systems are still measured.
async fn add(
    rows: &mut Vec<Row>,
    (figure, system): (&'static str, &'static str),
    measured: impl Future<Output = Result<Vec<Row>, String>>,
) {
    match AssertUnwindSafe(measured).catch_unwind().await {
        Ok(Ok(measured)) => rows.extend(measured),
        Ok(Err(why)) => rows.push(Row::skipped(figure, system, why)),
        // The panic message has already shown the reason.
        Err(_) => rows.push(Row::failed(figure).of(system)),
    }
}

/// Returns the versions of all systems. If `all` is false, returns only the versions of leasehold
/// and mongod, because the other systems may have to be built first.
pub(crate) async fn versions(setup: &Setup, all: bool) -> BTreeMap<String, String> {
    let last = |line: String| line.split(' ').next_back().unwrap_or_default().to_owned();
    let mut versions = BTreeMap::new();
    let mut add = |name: &str, version: Option<String>| {
        let version = version.unwrap_or_else(|| "not available".to_owned());
        versions.insert(name.to_owned(), version);
    };
    let ours = machine::version(setup.binary.clone(), "--version");
    add("leasehold", ours.map(|line| line.replace("leasehold ", "")));
    add("mongod", Some(machine::mongod()));
    if !all {
        return versions;
    }
    let programs = leasehold_testbed::kubernetes_programs().ok();
    let of = |name: &str| machine::version(programs.as_ref()?.join(name), "--version").map(last);
    add("kube-apiserver", of("kube-apiserver"));
    add("etcd", of("etcd"));
    let etcdctl = leasehold_testbed::etcdctl_binary().ok();
    let etcdctl = etcdctl.and_then(|path| machine::version(path, "version"));
    add("etcdctl", etcdctl.map(last));
    let elector = client_go::program().await.ok();
    let elector = elector.and_then(|path| machine::version(path, "-version"));
    add("client-go", elector);
    versions
}
