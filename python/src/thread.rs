//! Threads that call Python often.

use pyo3::ffi;

/// Keeps the interpreter's state of this thread while it lives, so that a call from Rust need not make a new one each time. It does
/// not hold the interpreter.
pub(crate) struct Stay {
    gil: ffi::PyGILState_STATE,
    saved: *mut ffi::PyThreadState,
    /// Not to be sent to another thread.
    thread: std::thread::ThreadId,
}

impl Stay {
    pub(crate) fn here() -> Self {
        // SAFETY: the interpreter is running, because it called this library. Ensure and Save are undone in reverse order by the
        // same thread (`drop`), and between them the interpreter is free for others.
        unsafe {
            let gil = ffi::PyGILState_Ensure();
            Self { gil, saved: ffi::PyEval_SaveThread(), thread: std::thread::current().id() }
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // On another thread the state is kept for ever rather than released where it does not belong.
        if std::thread::current().id() == self.thread {
            // SAFETY: as in `here`.
            unsafe {
                ffi::PyEval_RestoreThread(self.saved);
                ffi::PyGILState_Release(self.gil);
            }
        }
    }
}
