//! The configuration as an operator meets it: layers, mistakes, masking and
//! exit codes, on files of the disk and on the real binary.

mod arbitrary_text;
mod exit_codes;
mod layers;
mod mistakes;
mod secrets;
mod setup;
mod workload;
