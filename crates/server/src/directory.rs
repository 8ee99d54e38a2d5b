//! The data directory belongs to one process at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process has it.
    #[error(
        "the data directory {path} is in use by process {owner}: stop that process, or give this one \
         another directory with --data-dir"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The other process' id, as it wrote it down.
        owner: String,
    },
    /// The system refused.
    #[error("the data directory {path} cannot be used; it must be a folder this process may write to")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Holds the directory until dropped; the system frees it when the process dies.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Makes the directory, for its owner alone, if it is missing, and takes it for this process.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn take(path: &Path) -> Result<Self, DirectoryError> {
        let io = |source| DirectoryError::Io { path: path.to_owned(), source };
        // Who bought what is nobody else's to read. A directory that is there keeps its rights.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join("lock"));
        let mut file = file.map_err(io)?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            let owner = if owner.is_empty() { "(unknown)".to_owned() } else { owner };
            return Err(DirectoryError::InUse { path: path.to_owned(), owner });
        }
        let named = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{}", std::process::id()));
        named.map_err(io)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_belongs_to_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let held = DirectoryLock::take(folder.path()).unwrap();
        let error = DirectoryLock::take(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(held);
        DirectoryLock::take(folder.path()).unwrap();
    }

    #[test]
    fn a_new_directory_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outer/data");
        let _held = DirectoryLock::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
