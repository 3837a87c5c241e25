//! Tests the Helm charts with helm, kubeconform, promtool and a real API server.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

mod alerts;
mod cluster;
mod cluster_rights;
mod collection;
mod configuration;
mod connection;
mod daemon_set;
mod dashboard;
mod documented;
mod end_to_end;
mod event_policy;
mod guard;
mod helm;
mod helm_test;
mod injection;
mod injection_of_guards;
mod instances;
mod kustomize;
mod leases;
mod library;
mod metadata;
mod mistakes;
mod names;
mod nulls;
mod openshift;
mod operators;
mod platform;
mod pods;
mod policy;
mod policy_cost;
mod published;
mod release;
mod renders;
mod rollback;
mod routes;
mod supervisor;
mod templates;
mod values_documented;
mod web;
mod workloads;
