mod histories;
mod judge;
mod outside;
mod stories;
mod table;
mod told;
mod words;
mod world;
