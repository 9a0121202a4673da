//! A step that is lent to Python for the duration of one call.
//!
//! Python may keep the object, or hand it to another thread. So the step itself stays behind a lock: each use takes it out and puts it
//! back, and when the call is over it is withdrawn for good, once a use that is still under way has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mile::agents::Step;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::waiting::on_this_thread;

/// How often a call that waits for a use on another thread looks for signals.
const PATIENCE: Duration = Duration::from_millis(50);

/// Where the step is.
enum Place {
    /// Here, available for the next use.
    Here(&'static mut Step<'static>),
    /// In use.
    Out,
    /// Back with its owner: the call is over.
    Back,
}

/// A step on loan.
pub(crate) struct Loan {
    place: Mutex<Place>,
    put_back: Condvar,
}

impl Loan {
    /// Lends a step while `call` runs, and waits until it is no longer in use. `interrupted` is called when a signal handler raises
    /// an exception meanwhile, which is then returned; it should make the use that is waited for end early.
    pub(crate) fn lend<R>(
        py: Python<'_>,
        step: &mut Step<'_>,
        interrupted: impl Fn(),
        call: impl FnOnce(&Arc<Self>) -> PyResult<R>,
    ) -> PyResult<R> {
        // SAFETY: only the lifetimes change. The reference is never copied and never leaves the loan but for `Taken`, which puts it back; `End`
        // waits for that and destroys it before this function returns or unwinds, which is before the borrow of `step` ends.
        let step = unsafe { std::mem::transmute::<&mut Step<'_>, &'static mut Step<'static>>(step) };
        let loan = Arc::new(Self { place: Mutex::new(Place::Here(step)), put_back: Condvar::new() });
        let end = End { py, loan: &loan };
        let result = call(&loan);
        let signals = end.wait(interrupted);
        signals.and(result)
    }

    /// Uses the step with the interpreter released. The work stays on this thread if it is one of Python's, and so do calls of objectives.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Step) -> R + Send,
    ) -> PyResult<R> {
        let mut taken = self.take()?;
        Ok(py.detach(move || on_this_thread(|| work(taken.step()))))
    }

    fn take(&self) -> PyResult<Taken<'_>> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, Place::Out) {
            Place::Here(step) => Ok(Taken { loan: self, step: Some(step) }),
            Place::Out => Err(PyRuntimeError::new_err(
                "s: expected one use at a time, got another; a verb is running on another thread, or called the objective that uses s",
            )),
            Place::Back => {
                *place = Place::Back;
                Err(PyRuntimeError::new_err(
                    "s: expected use during start or step, got use after the call had returned",
                ))
            }
        }
    }

    /// Takes the step away for good, unless it is out.
    fn close(&self) -> bool {
        let mut place = self.lock();
        let is_in = !matches!(*place, Place::Out);
        if is_in {
            *place = Place::Back;
        }
        is_in
    }

    /// Waits until the step may have been put back.
    fn wait(&self) {
        let place = self.lock();
        let is_out = |place: &mut Place| matches!(place, Place::Out);
        drop(self.put_back.wait_timeout_while(place, PATIENCE, is_out));
    }

    /// No Python code runs while the lock is held, so that no thread that holds the interpreter ever waits for it.
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step in use; it is put back even if the work panics.
struct Taken<'l> {
    loan: &'l Loan,
    step: Option<&'static mut Step<'static>>,
}

impl Taken<'_> {
    fn step(&mut self) -> &mut Step<'static> {
        self.step.as_mut().expect("the step is here until this value is dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(step) = self.step.take() {
            *self.loan.lock() = Place::Here(step);
            self.loan.put_back.notify_all();
        }
    }
}

/// Ends a loan, however the call ends.
struct End<'l, 'py> {
    py: Python<'py>,
    loan: &'l Loan,
}

impl End<'_, '_> {
    /// Waits without the interpreter, which the use that is waited for may need, and returns what signal handlers raised.
    fn wait(&self, interrupted: impl Fn()) -> PyResult<()> {
        let mut signals = Ok(());
        while !self.loan.close() {
            self.py.detach(|| self.loan.wait());
            if let Err(error) = self.py.check_signals() {
                interrupted();
                signals = Err(error);
            }
        }
        signals
    }
}

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        while !self.loan.close() {
            self.py.detach(|| self.loan.wait());
        }
    }
}
