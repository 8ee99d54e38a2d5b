//! The file layer below the log: the system's, or a simulated one that forgets what was not made
//! durable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder of files, flat.
pub trait Files: Send + Sync + 'static {
    /// The names in the folder.
    ///
    /// # Errors
    /// What the system reports.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The whole of one file; an error of kind `NotFound` when there is none.
    ///
    /// # Errors
    /// What the system reports.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Opens a file for reading from any place.
    ///
    /// # Errors
    /// What the system reports.
    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>>;

    /// Opens a file to write behind its first `keep` bytes, making it if `keep` is 0 and there is
    /// none; what stands behind them is cut off.
    ///
    /// # Errors
    /// What the system reports.
    fn write_behind(&self, name: &str, keep: u64) -> io::Result<Box<dyn Appender>>;

    /// Removes a file; it may come back after a crash until the folder is made durable.
    ///
    /// # Errors
    /// What the system reports.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the folder's names durable.
    ///
    /// # Errors
    /// What the system reports.
    fn sync_folder(&self) -> io::Result<()>;

    /// Where the folder is, for messages.
    fn path(&self) -> PathBuf;
}

/// Reads from any place of one file.
pub trait ReadAt: Send + Sync {
    /// Fills as much of `buffer` as there is from `at` on; 0 at the end.
    ///
    /// # Errors
    /// What the system reports.
    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Writes at the end of one file.
pub trait Appender: Send {
    /// Writes all bytes; after an error some of them may be there.
    ///
    /// # Errors
    /// What the system reports.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file off behind its first `keep` bytes and goes on there.
    ///
    /// # Errors
    /// What the system reports.
    fn cut(&mut self, keep: u64) -> io::Result<()>;

    /// Makes everything written durable.
    ///
    /// # Errors
    /// What the system reports; the state of the disk is unknown then.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the system's.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    folder: PathBuf,
}

impl SystemFiles {
    /// The folder at `path`, made if it is missing.
    ///
    /// # Errors
    /// What the system reports.
    pub fn at(path: &Path) -> io::Result<Arc<Self>> {
        fs::create_dir_all(path)?;
        Ok(Arc::new(Self { folder: path.to_owned() }))
    }
}

impl Files for SystemFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.folder)?.map(|entry| entry.map(|it| it.file_name().into_string()));
        // A name that is no text is none of ours.
        names.filter_map(|name| name.map(Result::ok).transpose()).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.folder.join(name))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(SystemFile(File::open(self.folder.join(name))?)))
    }

    fn write_behind(&self, name: &str, keep: u64) -> io::Result<Box<dyn Appender>> {
        let mut options = OpenOptions::new();
        options.write(true).create(keep == 0).truncate(false).mode(0o600);
        let mut file = SystemFile(options.open(self.folder.join(name))?);
        file.cut(keep)?;
        Ok(Box::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn path(&self) -> PathBuf {
        self.folder.clone()
    }
}

struct SystemFile(File);

impl ReadAt for SystemFile {
    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.seek(SeekFrom::Start(at))?;
        self.0.read(buffer)
    }
}

impl Appender for SystemFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn cut(&mut self, keep: u64) -> io::Result<()> {
        self.0.set_len(keep)?;
        self.0.seek(SeekFrom::Start(keep)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The size is part of what fdatasync makes durable.
        Ok(rustix::fs::fdatasync(&self.0)?)
    }
}
