//! Memory whose addresses stay while the pages behind them change: how long a launch of a few microseconds takes depends on
//! where its tensors lie in the chips, and one place is not all places.

use super::{Address, Driver, Queue};
use crate::Fault;
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

/// Pages that were in use before are kept up to so many bytes, and this share of what is free, so that the driver hands out
/// others.
const KEPT: usize = 256 << 20;
const KEPT_OF_FREE: usize = 8;

/// `CUmemLocation`: kind and number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location(c_int, c_int);
const ON_DEVICE: c_int = 1;

/// `CUmemAllocationProp`.
#[repr(C)]
pub(super) struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    security: *const u8,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(super) struct Access {
    location: Location,
    flags: c_int,
}

/// A range of addresses between two that nobody can touch.
pub struct Pages {
    queue: Arc<Queue>,
    /// Of the whole range, and of the part that has pages.
    range: (Address, usize),
    pub address: Address,
    bytes: usize,
    /// Handles of pages; those in use come last.
    held: Mutex<Vec<u64>>,
}

impl Pages {
    /// `None` where the driver or the device cannot do it.
    pub fn new(queue: &Arc<Queue>, bytes: usize) -> Result<Option<Pages>, Fault> {
        let driver = queue.driver;
        let (mut grain, properties) = (0, properties(queue)?);
        // SAFETY: one integer is written.
        if unsafe { driver.table.cuMemGetAllocationGranularity(&mut grain, &properties, 0) } != 0 {
            return Ok(None);
        }
        let bytes = bytes.max(1).next_multiple_of(grain);
        let range = reserve(driver, bytes + 2 * grain)?;
        let address = range.0 + grain as u64;
        let pages = Pages { queue: Arc::clone(queue), range, address, bytes, held: Mutex::default() };
        let first = pages.create()?;
        pages.held.lock().unwrap_or_else(|e| e.into_inner()).push(first);
        pages.map(address, first)?;
        Ok(Some(pages))
    }

    /// The same bytes at the same addresses, in other pages. Where there is no memory for that they stay.
    pub fn elsewhere(&self) -> Result<(), Fault> {
        let Ok(new) = self.create() else { return Ok(()) };
        let mut held = self.held.lock().unwrap_or_else(|e| e.into_inner());
        held.insert(0, new); // released with the others, whatever happens
        let aside = reserve(self.queue.driver, self.bytes)?;
        let copied = self.map(aside.0, new).and_then(|()| {
            self.queue.wait_for_card()?;
            self.queue.copy(aside.0, self.address, self.bytes)?;
            self.queue.wait()
        });
        self.unmap(aside.0);
        free(self.queue.driver, aside);
        copied?;
        self.unmap(self.address);
        self.map(self.address, new)?;
        held.rotate_left(1);
        let most = KEPT.min(self.queue.memory()?.0 as usize / KEPT_OF_FREE);
        while held.len() > 1 && held.len() * self.bytes > most {
            release(self.queue.driver, held.remove(0));
        }
        Ok(())
    }

    fn create(&self) -> Result<u64, Fault> {
        let (driver, mut handle, properties) = (self.queue.driver, 0, properties(&self.queue)?);
        // SAFETY: one handle is written.
        let code = unsafe { driver.table.cuMemCreate(&mut handle, self.bytes, &properties, 0) };
        driver.check(code, "cuMemCreate").map(|()| handle)
    }

    fn map(&self, at: Address, handle: u64) -> Result<(), Fault> {
        let driver = self.queue.driver;
        let access = Access { location: properties(&self.queue)?.location, flags: 3 };
        // SAFETY: the addresses are reserved and have no pages; the handle is of as many bytes.
        unsafe {
            driver.check(driver.table.cuMemMap(at, self.bytes, 0, handle, 0), "cuMemMap")?;
            driver.check(driver.table.cuMemSetAccess(at, self.bytes, &access, 1), "cuMemSetAccess")
        }
    }

    fn unmap(&self, at: Address) {
        // SAFETY: nothing that was enqueued uses the addresses any more.
        let _ = unsafe { self.queue.driver.table.cuMemUnmap(at, self.bytes) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.queue.wait_for_card();
        self.unmap(self.address);
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(|e| e.into_inner()));
        held.into_iter().for_each(|handle| release(self.queue.driver, handle));
        free(self.queue.driver, self.range);
    }
}

/// Of memory on the queue's device.
fn properties(queue: &Queue) -> Result<Properties, Fault> {
    const PINNED: c_int = 1;
    let mut device = 0;
    // SAFETY: one integer is written.
    queue.driver.check(unsafe { queue.driver.table.cuCtxGetDevice(&mut device) }, "cuCtxGetDevice")?;
    let location = Location(ON_DEVICE, device);
    Ok(Properties { kind: PINNED, handles: 0, location, security: std::ptr::null(), flags: [0; 8] })
}

fn reserve(driver: &Driver, bytes: usize) -> Result<(Address, usize), Fault> {
    let mut address = 0;
    // SAFETY: one address is written.
    let code = unsafe { driver.table.cuMemAddressReserve(&mut address, bytes, 0, 0, 0) };
    driver.check(code, "cuMemAddressReserve").map(|()| (address, bytes))
}

fn free(driver: &Driver, (address, bytes): (Address, usize)) {
    // SAFETY: reserved as such, and without pages.
    let _ = unsafe { driver.table.cuMemAddressFree(address, bytes) };
}

fn release(driver: &Driver, handle: u64) {
    // SAFETY: created by us, and released once.
    let _ = unsafe { driver.table.cuMemRelease(handle) };
}
