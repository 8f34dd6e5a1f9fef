//! The first use of a case by a library, before anything is timed: what it compiles is in its cache afterwards.

use super::Bench;
use crate::plan::Planned;
use kmark_core::record::{Mode, family};
use kmark_core::wire::Request;
use kmark_device::Fault;

impl Bench<'_> {
    pub fn compile(&mut self, planned: &Planned, impl_name: &str) -> Result<(), Fault> {
        let (case, library) = (planned.case.clone(), family(impl_name));
        let request = Request::Prepare { case, impl_name: impl_name.to_string(), mode: Mode::Cold, check: false };
        let limits = self.first_limits(planned, &library);
        let prepared = self.workers.ask(&library, &request, limits).map(drop);
        // A worker that cannot let go is replaced at the next request.
        let _ = self.workers.ask(&library, &Request::Release, limits);
        prepared
    }
}
