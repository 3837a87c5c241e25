//! The configuration as an operator sees it: layers, mistakes, masking and exit codes, with files
//! on disk and the real binary.

mod arbitrary_text;
mod exit_codes;
mod layers;
mod mistakes;
mod secrets;
mod setup;
mod workload;
