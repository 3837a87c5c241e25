//! Arguments of the tools.

pub mod checking;
pub mod locks;
pub mod operating;
pub mod replicas;
pub mod status;
mod web;
