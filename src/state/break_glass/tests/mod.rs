mod stories;
mod table;
mod told;
mod words;
