//! Tests the configuration as an operator uses it: layers, mistakes, masked secrets and exit codes,
//! with files on disk and the real binary.

mod arbitrary_text;
mod exit_codes;
mod layers;
mod log_style;
mod mistakes;
mod secrets;
mod setup;
mod workload;
