//! The configuration as an operator meets it: layers, mistakes, masking and
//! exit codes, on files of the disk and on the real binary.

#[path = "configuration/arbitrary_text.rs"]
mod arbitrary_text;
#[path = "configuration/exit_codes.rs"]
mod exit_codes;
#[path = "configuration/layers.rs"]
mod layers;
#[path = "configuration/mistakes.rs"]
mod mistakes;
#[path = "configuration/secrets.rs"]
mod secrets;
#[path = "configuration/setup.rs"]
mod setup;
#[path = "configuration/workload.rs"]
mod workload;
