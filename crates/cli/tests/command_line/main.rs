//! What a user of the command sees, and what it leaves. One program of all these tests: each program of its own is linked
//! anew after every change below the command. What needs a terminal has one (`live`), so that nothing else starts meanwhile.

mod clients;
mod command;
mod content;
mod folder;
mod gates;
mod guard;
mod imports;
mod interrupt;
mod limits;
mod loads;
mod map;
mod messages;
mod mistakes;
mod model;
mod package;
mod probe;
mod react;
mod repeated;
mod several;
mod trace;
mod volume;
mod volume_served;
