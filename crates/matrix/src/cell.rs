//! What a cell of the matrix is: a fault, where and when it acts, and what became of it.

use serde::Serialize;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A bit of the block is wrong.
    BitFlip,
    /// The block is zeros.
    Zeros,
    /// The block is what it was before it was written last.
    Stale,
    /// A write is acknowledged and not done.
    Lost,
    /// A write lands on another block that is in use.
    Misdirected,
    /// Of a write only the first sectors are done.
    Torn,
    /// The block cannot be read; under load not written either.
    Error,
    /// Requests for the block do not come back for a minute.
    Hang,
    /// Requests for the block take longer, but less than is waited for.
    Slow,
    /// The whole device is gone.
    Gone,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::BitFlip,
        Self::Zeros,
        Self::Stale,
        Self::Lost,
        Self::Misdirected,
        Self::Torn,
        Self::Error,
        Self::Hang,
        Self::Slow,
        Self::Gone,
    ];

    /// Its words.
    pub fn word(self) -> &'static str {
        match self {
            Self::BitFlip => "bit flip",
            Self::Zeros => "zeros",
            Self::Stale => "stale",
            Self::Lost => "lost write",
            Self::Misdirected => "misdirected write",
            Self::Torn => "torn write",
            Self::Error => "error",
            Self::Hang => "hang",
            Self::Slow => "slow",
            Self::Gone => "whole device",
        }
    }
}

/// Where it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The first copy of a block of data.
    DataA,
    /// The second.
    DataB,
    /// Both.
    Data,
    /// Checksums, all that one member has of them.
    SumsA,
    /// On both members.
    Sums,
    /// The map that says where blocks are, all that one member has of it.
    MapA,
    /// On both members.
    Map,
    /// What a member says of the whole (records, superblocks), of one member.
    RecordA,
    /// Of both members.
    Record,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::DataA,
        Self::DataB,
        Self::Data,
        Self::SumsA,
        Self::Sums,
        Self::MapA,
        Self::Map,
        Self::RecordA,
        Self::Record,
    ];

    /// Its words.
    pub fn word(self) -> &'static str {
        match self {
            Self::DataA => "data A",
            Self::DataB => "data B",
            Self::Data => "data both",
            Self::SumsA => "sums A",
            Self::Sums => "sums both",
            Self::MapA => "map A",
            Self::Map => "map both",
            Self::RecordA => "record A",
            Self::Record => "record both",
        }
    }

    /// The members on which it is.
    pub fn members(self) -> &'static [usize] {
        match self {
            Self::DataA | Self::SumsA | Self::MapA | Self::RecordA => &[0],
            Self::DataB => &[1],
            Self::Data | Self::Sums | Self::Map | Self::Record => &[0, 1],
        }
    }

    /// Whether it is data.
    pub fn is_data(self) -> bool {
        matches!(self, Self::DataA | Self::DataB | Self::Data)
    }
}

/// When it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Nobody uses the device meanwhile; faults of writes hit what was written last before.
    Rest,
    /// While blocks are read and written.
    Load,
}

impl When {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Rest, Self::Load];

    /// Its words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rest => "at rest",
            Self::Load => "under load",
        }
    }
}

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// All data were right, and in the end both members hold the same again.
    Repaired,
    /// All data were right; in the end the members differ where the fault was, or one is gone.
    Masked,
    /// Something was answered with an error, and nothing was wrong.
    Reported,
    /// Wrong data were handed out.
    Silent,
    /// No request met it.
    Unmet,
    /// All data were right, but somebody waited until the device answered again.
    Waited,
    /// A request never came back.
    Hung,
    /// It could not be aimed there, so nobody knows.
    Unknown,
}

impl Fate {
    /// Its letter in a table.
    pub fn letter(self) -> char {
        match self {
            Self::Repaired => 'R',
            Self::Masked => 'M',
            Self::Reported => 'E',
            Self::Silent => 'S',
            Self::Unmet => '-',
            Self::Waited => 'W',
            Self::Hung => 'H',
            Self::Unknown => '?',
        }
    }
}

/// A cell and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// What went wrong.
    pub fault: Fault,
    /// Where.
    pub place: Place,
    /// When.
    pub when: When,
    /// What became of it.
    pub fate: Fate,
    /// How often it acted.
    pub hits: u64,
    /// The first error that was answered.
    pub error: Option<String>,
    /// After an error: everything was right again once it had been written anew.
    pub is_cured_by_rewriting: bool,
}

impl Cell {
    /// Whether it is as it should be: never silent; right where one member has a good copy; after an error cured by rewriting
    /// what was lost, unless the whole is.
    pub fn is_as_promised(&self) -> bool {
        match self.fate {
            Fate::Repaired | Fate::Masked | Fate::Unmet => true,
            Fate::Silent | Fate::Waited | Fate::Hung | Fate::Unknown => false,
            Fate::Reported => {
                // Checksums of the target's page are also those of the map's beginning.
                let is_whole = self.fault == Fault::Gone || matches!(self.place, Place::Record | Place::Sums);
                self.place.members().len() == 2 && (is_whole || self.is_cured_by_rewriting)
            }
        }
    }
}

/// Fault, place and time of every cell that there is: a whole device has no places.
pub fn all_cells() -> Vec<(Fault, Place, When)> {
    let mut cells = Vec::new();
    for when in When::ALL {
        for fault in Fault::ALL {
            let places = Place::ALL.into_iter().filter(|place| fault != Fault::Gone || place.is_data());
            cells.extend(places.map(|place| (fault, place, when)));
        }
    }
    cells
}
