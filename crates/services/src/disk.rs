//! A disk of a few megabytes, for a server that is to see it full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::output_of;
use crate::launch;

/// What takes the space while the disk is full.
const BALLAST: &str = "ballast";

/// Bytes that are written at a time; a last piece shorter than this may stay free otherwise.
const PIECE: usize = 64 * 1024;

/// A file system of its own in memory: whoever writes beyond its end hears ENOSPC from the kernel, as on a
/// disk. It goes with this value.
///
/// It is mounted, which the superuser alone may do. (A limit on the size of files was refused: it
/// gives EFBIG and a signal, to one process, and never for the sum of its files.)
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// A disk of so many megabytes.
    ///
    /// # Errors
    /// It cannot be mounted; the message says who may.
    pub fn mount(megabytes: u32) -> Result<Self> {
        let folder = launch::folder("disk")?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=755"), "doorbuster"]).arg(&folder);
        let mounted = output_of(&mut mount).context(
            "a small disk must be mounted, which the superuser may do (or a container with CAP_SYS_ADMIN)",
        );
        if let Err(error) = mounted {
            fs::remove_dir(&folder)?;
            return Err(error);
        }
        Ok(Self { folder })
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes all the space that is left.
    ///
    /// # Errors
    /// It cannot be written for another reason than that it is full.
    pub fn fill(&self) -> Result<()> {
        let path = self.folder.join(BALLAST);
        let mut file = File::create(&path).with_context(|| path.display().to_string())?;
        // The last pieces are small, so that nothing is left.
        for size in [PIECE, 512] {
            let piece = vec![0; size];
            loop {
                match file.write_all(&piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).with_context(|| path.display().to_string()),
                }
            }
        }
        Ok(())
    }

    /// Gives the space back that [`fill`](Self::fill) took.
    ///
    /// # Errors
    /// The ballast cannot be removed.
    pub fn free(&self) -> Result<()> {
        fs::remove_file(self.folder.join(BALLAST)).context("freeing a small disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = output_of(Command::new("umount").arg(&self.folder));
        if let Err(error) = unmounted.and_then(|_| Ok(fs::remove_dir(&self.folder)?)) {
            eprintln!("services: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_nothing_until_it_is_freed() {
        if !rustix::process::geteuid().is_root() {
            let error = SmallDisk::mount(1).err().expect("nobody else may mount");
            assert!(format!("{error:#}").contains("superuser"), "{error:#}");
            return;
        }
        let disk = SmallDisk::mount(1).expect("the superuser may mount");
        let file = disk.folder().join("file");
        let write = || fs::write(&file, [1; 8192]);
        disk.fill().expect("it fills up");
        assert_eq!(write().expect_err("it is full").kind(), std::io::ErrorKind::StorageFull);
        disk.free().expect("the ballast is there");
        write().expect("there is space again");
        let folder = disk.folder().to_owned();
        drop(disk);
        assert!(!folder.exists());
    }
}
